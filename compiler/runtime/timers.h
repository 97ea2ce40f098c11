/* Seconds of each kernel in the last run, in libraries that were built with timers; nothing in all others. */
#ifndef HALOTILE_TIMERS_H
#define HALOTILE_TIMERS_H

#include <stddef.h>
#include <stdint.h>

struct halotile_timers {
    uint64_t last; /* nanoseconds; when the kernel under way began */
    uint64_t spent[];
};

/* Room for `count` kernels, or NULL. */
struct halotile_timers *halotile_timers_make(size_t count);

/* A run begins: every time is zero. */
void halotile_timers_start(struct halotile_timers *timers, size_t count);

/* Called by the compiled main after each kernel: what passed since the last call is that kernel's. */
int32_t halotile_timer(int32_t kernel);

#endif
