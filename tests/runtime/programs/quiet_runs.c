/* Counts what is asked of the allocator and of the system's memory while runs are under way; see
   benchmarks/allocations.c. */
#include <stdio.h>
#include "allocations.h"
#include "rounds.h"

static float x[ROUNDS_INPUT_0_ELEMENTS];
static float y[ROUNDS_OUTPUT_0_ELEMENTS];

static int run(void *instance, void *inputs, void *outputs, void *nothing) {
    int i;
    (void)nothing;
    for (i = 0; i < 100; ++i) {
        if (rounds_run(instance, (const void **)inputs, (void **)outputs)) {
            return 1;
        }
    }
    return 0;
}

static int make(void *instance, void *a, void *b, void *c) {
    (void)a, (void)b, (void)c;
    return rounds_create(1, (rounds_instance **)instance);
}

int main(void) {
    const void *inputs[1];
    void *outputs[1];
    rounds_instance *instance;
    long asked, total = 0;
    int threads;
    inputs[0] = x;
    outputs[0] = y;
    for (threads = 1; threads < 4; ++threads) {
        if (rounds_create(threads, &instance)) {
            return 1;
        }
        if (halotile_counted(run, instance, (void *)inputs, outputs, NULL, &asked)) {
            return 2;
        }
        total += asked;
        rounds_destroy(instance);
    }
    if (halotile_counts() != 1 || halotile_counted(make, &instance, NULL, NULL, NULL, &asked) || asked < 1) {
        return 3; /* the counter counts: making an instance does allocate */
    }
    rounds_destroy(instance);
    printf("%ld allocations\n", total);
    return 0;
}
