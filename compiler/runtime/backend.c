/* What compiled kernels call: parallel launches and scratch. Nothing else is needed from a runtime.
 *
 * The kernels' object defines these names as weak, empty pointers to functions; the definitions here replace them.
 */
#define _GNU_SOURCE
#include "model.h"
#include "pool.h"

static int launch(halotile_task task, void *closure, int tasks) {
    struct halotile_worker *self = halotile_current();
    return self ? halotile_pool_launch(self, task, closure, tasks) : -1;
}

/* By main, before a kernel: whether its launches stay on the thread that calls run. */
int32_t halotile_alone(int32_t alone) {
    halotile_current()->alone = alone;
    return 0;
}

/* Scratch is a stack inside the worker's part of the arena: a kernel frees what it allocated last. */
static void *alloc_workspace(int device_type, int device_id, uint64_t bytes, int code_hint, int bits_hint) {
    struct halotile_worker *self = halotile_current();
    (void)device_type, (void)device_id, (void)code_hint, (void)bits_hint;
    if (!self) {
        return NULL;
    }
    uint64_t left = self->workspace_bytes - self->workspace_used;
    if (bytes > left) {
        halotile_pool_fail(self->pool, HALOTILE_ERROR_WORKSPACE);
        return NULL;
    }
    void *place = self->workspace + self->workspace_used;
    /* Every size is a multiple of the alignment, so rounding up stays within what is left. */
    self->workspace_used += ((size_t)bytes + HALOTILE_ALIGNMENT - 1) / HALOTILE_ALIGNMENT * HALOTILE_ALIGNMENT;
    return place;
}

static int free_workspace(int device_type, int device_id, void *place) {
    struct halotile_worker *self = halotile_current();
    (void)device_type, (void)device_id;
    uintptr_t offset = self ? (uintptr_t)place - (uintptr_t)self->workspace : 0;
    if (!self || offset > self->workspace_used) {
        return -1;
    }
    self->workspace_used = offset;
    return 0;
}

int (*__TVMBackendParallelLaunch)(halotile_task, void *, int) = launch;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = alloc_workspace;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = free_workspace;
