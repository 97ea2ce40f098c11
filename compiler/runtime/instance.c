/* One instance of the model: an arena, a pool, and a flag that says whether a run is under way. */
#define _GNU_SOURCE
#include "instance.h"

#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sched.h>
#endif

#include "arena.h"
#include "floats.h"
#include "model.h"
#include "quota.h"
#include "state.h"
#include "system.h"
#include "timers.h"

#ifndef HALOTILE_ONE_THREAD
#include <unistd.h>
#endif

#ifdef HALOTILE_ONE_THREAD
static int usable_processors(void) { return 1; }
#else
/* Those that this process may run on, within what a container grants of their time. */
static int usable_processors(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int usable = online > 0 ? (int)online : 1, granted = halotile_processors_granted();
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        usable = CPU_COUNT(&set);
    }
#endif
    return usable < granted ? usable : granted;
}
#endif

int halotile_decide_threads(int threads) {
    if (threads == 0) {
        int usable = usable_processors();
        threads = halotile_model.default_threads ? halotile_model.default_threads : usable;
        threads = threads < usable ? threads : usable;
        return threads < halotile_model.max_threads ? threads : halotile_model.max_threads;
    }
    return threads > 0 && threads <= halotile_model.max_threads ? threads : 0;
}

size_t halotile_arena_bytes(int threads) {
    threads = halotile_decide_threads(threads);
    return threads ? halotile_model.planned_bytes + (size_t)threads * halotile_model.workspace_bytes : 0;
}

static struct halotile_instance *allocate(int threads) {
    const struct halotile_open *open = halotile_model.open;
    size_t bytes = sizeof(struct halotile_instance) + (size_t)threads * sizeof(struct halotile_worker);
    size_t numbers = open ? open->symbol_count + open->fact_count : 0;
    void *memory = halotile_aligned(_Alignof(struct halotile_instance), bytes + numbers * sizeof(int64_t));
    if (!memory) {
        return NULL;
    }
    memset(memory, 0, bytes);
    struct halotile_instance *instance = memory;
    instance->shape = open ? (int64_t *)(instance->workers + threads) : NULL;
    return instance;
}

static int provide_arena(struct halotile_instance *instance, const struct halotile_memory *given, size_t needed) {
    instance->arena_bytes = given ? given->bytes : needed;
    if (given) {
        instance->arena = given->start;
        int usable = given->bytes >= needed && (uintptr_t)given->start % HALOTILE_ALIGNMENT == 0;
        return usable && (given->start || !needed) ? HALOTILE_OK : HALOTILE_ERROR_ARENA;
    }
    instance->arena = halotile_arena_map(needed);
    instance->owns_arena = instance->arena != NULL;
    return instance->arena ? HALOTILE_OK : HALOTILE_ERROR_MEMORY;
}

void halotile_place_workspaces(struct halotile_instance *instance, const struct halotile_needs *needs) {
    unsigned char *workspace = instance->arena + needs->planned;
    for (int i = 0; i < instance->pool.threads; ++i) {
        instance->workers[i].workspace = workspace + (size_t)i * needs->workspace;
        instance->workers[i].workspace_bytes = needs->workspace;
    }
}

static int start_pool(struct halotile_instance *instance, int threads, const struct halotile_needs *needs) {
    instance->pool.threads = threads;
    instance->pool.workers = instance->workers;
    for (int i = 0; i < threads; ++i) {
        instance->workers[i].pool = &instance->pool;
        instance->workers[i].index = i;
    }
    halotile_place_workspaces(instance, needs);
    return halotile_pool_start(&instance->pool);
}

int halotile_create(int threads, const struct halotile_memory *arena, struct halotile_instance **result) {
    struct halotile_needs needs = {halotile_model.planned_bytes, halotile_model.workspace_bytes};
    return halotile_make(threads, &needs, arena, result);
}

int halotile_make(int threads, const struct halotile_needs *needs, const struct halotile_memory *arena,
                  struct halotile_instance **result) {
    *result = NULL;
    if (!halotile_model.processor_fits()) {
        return HALOTILE_ERROR_PROCESSOR;
    }
    threads = halotile_decide_threads(threads);
    if (!threads) {
        return HALOTILE_ERROR_THREADS;
    }
    struct halotile_instance *instance = allocate(threads);
    if (!instance) {
        return HALOTILE_ERROR_MEMORY;
    }
    int code = halotile_model.take_weights ? halotile_model.take_weights() : HALOTILE_OK;
    instance->reads_weights = code == HALOTILE_OK;
    if (code == HALOTILE_OK) {
        code = provide_arena(instance, arena, needs->planned + (size_t)threads * needs->workspace);
    }
    if (code == HALOTILE_OK && halotile_model.timers) {
        instance->pool.timers = halotile_timers_make(halotile_model.timers);
        code = instance->pool.timers ? HALOTILE_OK : HALOTILE_ERROR_MEMORY;
    }
    if (code == HALOTILE_OK) {
        code = start_pool(instance, threads, needs);
    }
    if (code != HALOTILE_OK) {
        halotile_destroy(instance);
        return code;
    }
    *result = instance;
    return HALOTILE_OK;
}

static int any_null(const void *const *pointers, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        if (!pointers[i]) {
            return 1;
        }
    }
    return 0;
}

static int32_t call(const struct halotile_instance *instance, const void *const *inputs, void *const *outputs) {
    const struct halotile_open *open = halotile_model.open;
    if (open) {
        const int64_t *facts = instance->shape + open->symbol_count;
        return open->call(inputs, outputs, halotile_model.weights, instance->arena, instance->shape, facts);
    }
    return halotile_model.call(inputs, outputs, halotile_model.weights, instance->arena);
}

int halotile_compute(struct halotile_instance *instance, const void *const *inputs, void *const *outputs) {
    struct halotile_pool *pool = &instance->pool;
    struct halotile_worker *self = &instance->workers[0];
    struct halotile_worker *outer = halotile_set_current(self);
    halotile_floats floats = halotile_floats_of(halotile_model.flush_denormals);
    halotile_floats before = halotile_floats_enter(floats);
    self->workspace_used = 0;
    self->alone = 0;
    atomic_store_explicit(&pool->failure, HALOTILE_OK, memory_order_relaxed);
    atomic_store_explicit(&pool->active, 1, memory_order_relaxed);
    if (pool->timers) {
        halotile_timers_start(pool->timers, halotile_model.timers);
    }
    int32_t result = call(instance, inputs, outputs);
    atomic_store_explicit(&pool->active, 0, memory_order_relaxed);
    halotile_floats_leave(before, floats);
    halotile_set_current(outer);
    unsigned failure = atomic_load_explicit(&pool->failure, memory_order_relaxed);
    if (failure != HALOTILE_OK) {
        return (int)failure;
    }
    return result == 0 ? HALOTILE_OK : HALOTILE_ERROR_KERNEL;
}

int halotile_begin(struct halotile_instance *instance, const void *const *inputs, void *const *outputs) {
    if (!instance || (!inputs && halotile_model.input_count) || (!outputs && halotile_model.output_count) ||
        any_null(inputs, halotile_model.input_count) ||
        any_null((const void *const *)outputs, halotile_model.output_count)) {
        return HALOTILE_ERROR_ARGUMENT;
    }
    return atomic_exchange_explicit(&instance->running, 1, memory_order_acquire) ? HALOTILE_ERROR_BUSY : HALOTILE_OK;
}

void halotile_end(struct halotile_instance *instance) {
    atomic_store_explicit(&instance->running, 0, memory_order_release);
}

int halotile_run(struct halotile_instance *instance, const void *const *inputs, void *const *outputs) {
    int code = halotile_begin(instance, inputs, outputs);
    if (code == HALOTILE_OK) {
        code = halotile_compute(instance, inputs, outputs);
        halotile_end(instance);
    }
    return code;
}

int halotile_threads(const struct halotile_instance *instance) { return instance ? instance->pool.threads : 0; }

int halotile_kernel_seconds(const struct halotile_instance *instance, double *seconds) {
    if (!instance || !seconds || !instance->pool.timers) {
        return HALOTILE_ERROR_ARGUMENT;
    }
    for (size_t i = 0; i < halotile_model.timers; ++i) {
        seconds[i] = (double)instance->pool.timers->spent[i] * 1e-9;
    }
    return HALOTILE_OK;
}

void halotile_destroy(struct halotile_instance *instance) {
    if (!instance) {
        return;
    }
    if (instance->pool.workers) {
        halotile_pool_finish(&instance->pool);
    }
    if (instance->owns_arena) {
        halotile_arena_unmap(instance->arena, instance->arena_bytes);
    }
    if (instance->reads_weights && halotile_model.drop_weights) {
        halotile_model.drop_weights();
    }
    free(instance->pool.timers);
    halotile_aligned_free(instance);
}

const char *halotile_error_text(int code) {
    switch (code) {
    case HALOTILE_OK: return "ok";
    case HALOTILE_ERROR_ARGUMENT: return "a pointer is null";
    case HALOTILE_ERROR_THREADS: return "the number of threads is negative or above the model's maximum";
    case HALOTILE_ERROR_MEMORY: return "not enough memory for the arena";
    case HALOTILE_ERROR_ARENA: return "the arena that was given is too small or not aligned to 64 bytes";
    case HALOTILE_ERROR_BUSY: return "the instance is running already; use one instance for each thread";
    case HALOTILE_ERROR_KERNEL: return "a kernel reported a failure";
    case HALOTILE_ERROR_WORKSPACE: return "a kernel asked for more scratch than was planned";
    case HALOTILE_ERROR_SYSTEM: return "a thread could not be started";
    case HALOTILE_ERROR_PROCESSOR:
        return "this processor lacks instructions that the library was compiled for, or the system keeps them from it";
    case HALOTILE_ERROR_TRANSFER: return "a transfer to or from the scratchpad failed";
    default: return "unknown error code";
    }
}
