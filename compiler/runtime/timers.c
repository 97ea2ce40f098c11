/* One clock reading after every kernel, by the thread that calls run. */
#define _GNU_SOURCE
#include "timers.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool.h"

#if defined(__wasm__) || defined(_WIN32) /* the build refuses timers there */
static uint64_t now(void) { return 0; }
#else
static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
#endif

struct halotile_timers *halotile_timers_make(size_t count) {
    return calloc(1, sizeof(struct halotile_timers) + count * sizeof(uint64_t));
}

void halotile_timers_start(struct halotile_timers *timers, size_t count) {
    memset(timers->spent, 0, count * sizeof(uint64_t));
    timers->last = now();
}

int32_t halotile_timer(int32_t kernel) {
    struct halotile_timers *timers = halotile_current()->pool->timers;
    uint64_t time = now();
    timers->spent[kernel] += time - timers->last;
    timers->last = time;
    return 0;
}
