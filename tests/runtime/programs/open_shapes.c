/* Exact arenas at many shapes: bytes around the arena stay as they are, what was in it does not matter, results are those
 * of the formula, and nothing is asked of the allocator while runs are under way (see benchmarks/allocations.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "allocations.h"
#include "open_net.h"

#define GUARD 4096
#define MOST 8

static long allocations;

static const open_net_shape shapes[MOST] = {{4, 10}, {1, 0}, {1, 2}, {7, 26}, {64, 1022}, {13, 34}, {64, 0}, {3, 4094}};
static float *x, *m, *y;

static int all(const unsigned char *bytes, size_t count, int value) {
    size_t i;
    for (i = 0; i < count; ++i) {
        if (bytes[i] != value) {
            return 0;
        }
    }
    return 1;
}

static void fill(const open_net_shape *shape) {
    long i;
    for (i = 0; i < (long)(shape->batch * shape->width) * 3; ++i) {
        x[i] = (float)((i * 7 + shape->batch) % 11);
    }
    for (i = 0; i < (long)shape->width; ++i) {
        m[i] = (float)(i % 5);
    }
}

static int is_right(const open_net_shape *shape) {
    long b, i, w = (long)shape->width;
    for (b = 0; b < (long)shape->batch; ++b) {
        const float *row = y + b * (2 * w + 1);
        for (i = 0; i < w; ++i) {
            const float *at = x + (b * w + i) * 3;
            float wanted = m[i] * (at[0] + at[1] + at[2]);
            if (row[i] != wanted || row[2 * w - 1 - i] != wanted) {
                return 0;
            }
        }
        if (row[2 * w] != (float)b) {
            return 0;
        }
    }
    return 1;
}

static int called(void *instance, void *shape, void *inputs, void *outputs) {
    return open_net_run_shape(instance, shape, (const void **)inputs, (void **)outputs);
}

static int made(void *shape, void *instance, void *a, void *b) {
    (void)a, (void)b;
    return open_net_create_for(2, shape, (open_net_instance **)instance);
}

static int run(open_net_instance *instance, const open_net_shape *shape) {
    const void *inputs[OPEN_NET_INPUTS];
    void *outputs[OPEN_NET_OUTPUTS];
    long asked;
    int code;
    inputs[0] = x;
    inputs[1] = m;
    outputs[0] = y;
    code = halotile_counted(called, instance, (void *)shape, (void *)inputs, outputs, &asked);
    allocations += asked;
    return code;
}

/* One instance in memory of ours that is exact for a shape, poisoned between runs; then all that take no more. */
static int check(const open_net_shape *shape, int threads, int poison) {
    size_t bytes = open_net_arena_bytes_for(shape, threads);
    unsigned char *memory = malloc(bytes + 2 * GUARD + 64);
    unsigned char *arena = memory + GUARD;
    open_net_instance *instance;
    int i, code;
    arena += 64 - (size_t)arena % 64;
    memset(memory, 0xa5, bytes + 2 * GUARD + 64);
    if (open_net_create_in_for(threads, shape, arena, bytes - 1, &instance) != OPEN_NET_ERROR_ARENA || instance) {
        return 1;
    }
    if (open_net_create_in_for(threads, shape, arena, bytes, &instance)) {
        return 2;
    }
    for (i = 0; i < MOST; ++i) {
        int fits = open_net_arena_bytes_for(&shapes[i], threads) <= bytes;
        fill(&shapes[i]);
        memset(arena, poison, bytes);
        memset(y, 0xff, open_net_output_0_bytes_for(&shapes[i]));
        code = run(instance, &shapes[i]);
        if (code != (fits ? OPEN_NET_OK : OPEN_NET_ERROR_SHAPE)) {
            return 3;
        }
        if (fits && !is_right(&shapes[i])) {
            return 4;
        }
        if (!fits && (!all((unsigned char *)y, open_net_output_0_bytes_for(&shapes[i]), 0xff) ||
                      !all(arena, bytes, poison))) {
            return 5; /* a refused run writes nothing */
        }
        if (!all(memory, (size_t)(arena - memory), 0xa5) || !all(arena + bytes, GUARD, 0xa5)) {
            return 6;
        }
    }
    memset(arena, poison, bytes);
    fill(shape);
    if (run(instance, shape) || (threads == 1 && shape->batch > 1 && all(arena + bytes - 64, 64, poison))) {
        return 7; /* its last line is in use */
    }
    open_net_destroy(instance);
    free(memory);
    return 0;
}

int main(void) {
    open_net_shape largest = {OPEN_NET_BATCH_MAX, 4096}, typical = OPEN_NET_TYPICAL_SHAPE;
    open_net_instance *instance;
    long asked;
    int i, threads, code;
    x = malloc(open_net_input_0_bytes_for(&largest));
    m = malloc(open_net_input_1_bytes_for(&largest));
    y = malloc(open_net_output_0_bytes_for(&largest));
    if (!x || !m || !y || typical.batch != 4 || typical.width != OPEN_NET_WIDTH_TYPICAL) {
        return 1;
    }
    for (threads = 1; threads < 5; ++threads) {
        for (i = 0; i < 2 * MOST; ++i) {
            code = check(&shapes[i / 2], threads, i % 2 ? 0xff : 0);
            if (code) {
                printf("shape %d on %d threads: failed with %d\n", i / 2, threads, code);
                return 1;
            }
        }
    }
    if (open_net_create_for(2, &largest, &instance)) {
        return 2;
    }
    for (i = 0; i < 2000; ++i) {
        open_net_shape shape;
        shape.batch = 1 + i * 29 % 64;
        shape.width = 2 * (i * 31 % 101);
        fill(&shape);
        if (run(instance, &shape) || (i % 20 == 0 && !is_right(&shape))) {
            return 3;
        }
    }
    open_net_destroy(instance);
    code = halotile_counted(made, &largest, &instance, NULL, NULL, &asked);
    printf("%s, %ld of them by runs\n", code || asked < 1 ? "nothing is counted" : "allocations are counted", allocations);
    open_net_destroy(instance);
    return 0;
}
