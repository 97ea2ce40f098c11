/* Counts what is asked of the allocator and of the system's memory while runs are under way. */
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include "rounds.h"

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *place, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static volatile int counting, allocations;

static void count(void) {
    if (counting) {
        ++allocations;
    }
}

void *malloc(size_t bytes) {
    count();
    return __libc_malloc(bytes);
}

void *calloc(size_t number, size_t bytes) {
    count();
    return __libc_calloc(number, bytes);
}

void *realloc(void *place, size_t bytes) {
    count();
    return __libc_realloc(place, bytes);
}

int posix_memalign(void **place, size_t alignment, size_t bytes) {
    count();
    *place = __libc_memalign(alignment, bytes);
    return *place == NULL;
}

static float x[ROUNDS_INPUT_0_ELEMENTS];
static float y[ROUNDS_OUTPUT_0_ELEMENTS];

int main(void) {
    const void *inputs[1];
    void *outputs[1];
    rounds_instance *instance;
    int threads, run;
    inputs[0] = x;
    outputs[0] = y;
    for (threads = 1; threads < 4; ++threads) {
        if (rounds_create(threads, &instance)) {
            return 1;
        }
        if (threads > 1 && !counting && allocations) {
            return 2;
        }
        counting = 1;
        for (run = 0; run < 100; ++run) {
            if (rounds_run(instance, inputs, outputs)) {
                return 3;
            }
        }
        counting = 0;
        rounds_destroy(instance);
    }
    counting = 1;
    if (rounds_create(1, &instance) || !allocations) {
        return 4; /* the counter counts: making an instance does allocate */
    }
    counting = 0;
    rounds_destroy(instance);
    printf("%d allocations\n", allocations - 1);
    return 0;
}
