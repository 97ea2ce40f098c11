/* Every misuse that the library can see, and what it says. */
#include <pthread.h>
#include <stdio.h>
#include "rounds.h"

static float x[ROUNDS_INPUT_0_ELEMENTS];
static float y[2][ROUNDS_OUTPUT_0_ELEMENTS];
static double memory[(ROUNDS_ARENA_BYTES(2) + 64) / sizeof(double) + 1];
static rounds_instance *shared;
static volatile int stop;

static void say(const char *what, int code) { printf("%s: %s\n", what, rounds_error_text(code)); }

static void *keep_running(void *unused) {
    const void *inputs[1];
    void *outputs[1];
    inputs[0] = x;
    outputs[0] = y[1];
    while (!stop) {
        rounds_run(shared, inputs, outputs);
    }
    return unused;
}

int main(void) {
    const void *inputs[1];
    void *outputs[1];
    char *arena = (char *)memory;
    rounds_instance *instance;
    pthread_t other;
    int code = ROUNDS_OK;
    inputs[0] = x;
    outputs[0] = y[0];
    while ((size_t)arena % ROUNDS_ARENA_ALIGNMENT) {
        ++arena;
    }
    if (rounds_create(1, &shared)) {
        return 1;
    }
    say("run without an instance", rounds_run(NULL, inputs, outputs));
    say("run without inputs", rounds_run(shared, NULL, outputs));
    inputs[0] = NULL;
    say("run with a null input", rounds_run(shared, inputs, outputs));
    inputs[0] = x;
    say("create without a result", rounds_create(1, NULL));
    say("create with -1 threads", rounds_create(-1, &instance));
    say("create with 65 threads", rounds_create(65, &instance));
    say("arena one byte short", rounds_create_in(2, arena, ROUNDS_ARENA_BYTES(2) - 1, &instance));
    if (instance || rounds_arena_bytes(2) != ROUNDS_ARENA_BYTES(2) || rounds_arena_bytes(65) != 0) {
        return 2;
    }
    say("arena not aligned", rounds_create_in(1, arena + 8, ROUNDS_ARENA_BYTES(1), &instance));
    say("no arena", rounds_create_in(1, NULL, ROUNDS_ARENA_BYTES(1), &instance));
    if (pthread_create(&other, NULL, keep_running, NULL)) {
        return 3;
    }
    while (code != ROUNDS_ERROR_BUSY) {
        code = rounds_run(shared, inputs, outputs);
    }
    say("run while running", code);
    stop = 1;
    pthread_join(other, NULL);
    say("fine", rounds_run(shared, inputs, outputs));
    say("unknown", 99);
    rounds_destroy(shared);
    rounds_destroy(NULL);
    return 0;
}
