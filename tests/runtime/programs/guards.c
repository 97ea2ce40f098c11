/* Exact arenas: bytes around the arena stay as they are, every part inside is used, and what was in it does not matter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rounds.h"

#define GUARD 4096
#ifndef MOST
#define MOST 5 /* threads */
#endif

static float x[ROUNDS_INPUT_0_ELEMENTS];
static float y[ROUNDS_OUTPUT_0_ELEMENTS];
static float first[ROUNDS_OUTPUT_0_ELEMENTS];

static int all(const unsigned char *bytes, size_t count, int value) {
    size_t i;
    for (i = 0; i < count; ++i) {
        if (bytes[i] != value) {
            return 0;
        }
    }
    return 1;
}

static int check(int threads, int poison) {
    size_t bytes = ROUNDS_ARENA_BYTES(threads);
    unsigned char *memory = malloc(bytes + 2 * GUARD + 64);
    unsigned char *arena = memory + GUARD;
    const void *inputs[1];
    void *outputs[1];
    rounds_instance *instance;
    int run;
    inputs[0] = x;
    outputs[0] = y;
    arena += 64 - (size_t)arena % 64;
    memset(memory, 0xa5, bytes + 2 * GUARD + 64);
    if (rounds_create_in(threads, arena, bytes, &instance)) {
        return 1;
    }
    for (run = 0; run < 20; ++run) {
        memset(arena, poison, bytes);
        memset(y, 0xff, sizeof y);
        if (rounds_run(instance, inputs, outputs) || memcmp(y, first, sizeof y)) {
            return 2;
        }
        if (!all(memory, (size_t)(arena - memory), 0xa5) || !all(arena + bytes, GUARD, 0xa5)) {
            return 3;
        }
#ifdef MAKES_ZEROS /* at the ends, of which can't be told who wrote them */
        if (!poison) {
            continue;
        }
#endif
        if (all(arena, 64, poison) || all(arena + ROUNDS_ARENA_BYTES(0) - 64, 64, poison)) {
            return 4; /* the planned part has no bytes to spare */
        }
        if (threads == 1 && all(arena + bytes - 64, 64, poison)) {
            return 5; /* nor has the scratch */
        }
    }
    rounds_destroy(instance);
    free(memory);
    return 0;
}

int main(void) {
    const void *inputs[1];
    void *outputs[1];
    rounds_instance *instance;
    int i, threads, code;
    for (i = 0; i < (int)ROUNDS_INPUT_0_ELEMENTS; ++i) {
        x[i] = (float)(i % 11) / 3.0f;
    }
    inputs[0] = x;
    outputs[0] = first;
    if (rounds_create(1, &instance) || rounds_run(instance, inputs, outputs)) {
        return 1;
    }
    rounds_destroy(instance);
    for (threads = 1; threads <= MOST; ++threads) {
        code = check(threads, 0xff);
        code = code ? code : check(threads, 0x00);
        if (code) {
            printf("%d threads: failed with %d\n", threads, code);
            return 1;
        }
    }
    printf("ok\n");
    return 0;
}
