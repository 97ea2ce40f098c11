/* The runtime behind every model's C API; the generated file gives these functions the model's name. */
#ifndef HALOTILE_INSTANCE_H
#define HALOTILE_INSTANCE_H

#include <stddef.h>

struct halotile_instance;

struct halotile_memory {
    void *start;
    size_t bytes;
};

size_t halotile_arena_bytes(int threads);
/* Without an arena the instance makes its own. *instance is NULL after an error. */
int halotile_create(int threads, const struct halotile_memory *arena, struct halotile_instance **instance);
int halotile_run(struct halotile_instance *instance, const void *const *inputs, void *const *outputs);
int halotile_threads(const struct halotile_instance *instance);
/* Seconds of each kernel in the last run; for libraries with timers. */
int halotile_kernel_seconds(const struct halotile_instance *instance, double *seconds);
void halotile_destroy(struct halotile_instance *instance);
const char *halotile_error_text(int code);

#endif
