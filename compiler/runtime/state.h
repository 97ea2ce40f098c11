/* What an instance is made of, for the files that create, run and destroy it. */
#ifndef HALOTILE_STATE_H
#define HALOTILE_STATE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "instance.h"
#include "pool.h"

struct halotile_instance {
    struct halotile_pool pool;
    atomic_uint running;
    unsigned char *arena;
    size_t arena_bytes;
    int owns_arena;
    int reads_weights; /* of the model, which counts who does */
    int64_t *shape; /* of open shapes: the symbols of the last run and the facts that follow from them */
    int settled;    /* whether these are there */
    struct halotile_worker workers[];
};

/* Bytes of an arena: the planned part, and the workspace that each thread has behind it. */
struct halotile_needs {
    size_t planned;
    size_t workspace;
};

/* 0 asks for the model's default: never more than this process may use. Returns 0 for a number that can't be. */
int halotile_decide_threads(int threads);

/* An instance whose arena serves `needs`; the number of threads is decided. */
int halotile_make(int threads, const struct halotile_needs *needs, const struct halotile_memory *arena,
                  struct halotile_instance **result);

/* Gives every worker its workspace, while nothing runs. */
void halotile_place_workspaces(struct halotile_instance *instance, const struct halotile_needs *needs);

/* A run is begun (nobody else may), computed and ended. */
int halotile_begin(struct halotile_instance *instance, const void *const *inputs, void *const *outputs);
int halotile_compute(struct halotile_instance *instance, const void *const *inputs, void *const *outputs);
void halotile_end(struct halotile_instance *instance);

#endif
