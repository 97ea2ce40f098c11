/* Two instances in two threads, each run many times with its own input; every result is compared bit by bit. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rounds.h"

struct job {
    int threads;
    int runs;
    float scale;
    int wrong;
};

static void *work(void *argument) {
    struct job *job = argument;
    float *x = malloc(ROUNDS_INPUT_0_BYTES), *y = malloc(ROUNDS_OUTPUT_0_BYTES);
    float *expected = malloc(ROUNDS_OUTPUT_0_BYTES);
    const void *inputs[1];
    void *outputs[1];
    rounds_instance *instance;
    int i, run, row;
    for (i = 0; i < (int)ROUNDS_INPUT_0_ELEMENTS; ++i) {
        x[i] = (float)(i % 13) * job->scale;
    }
    for (row = 0; row < 64; ++row) {
        for (i = 0; i < 32; ++i) {
            float one = x[row * 32 + 31 - i] + (float)(31 - i) / 8, total = 0;
            for (run = 0; run < 8; ++run) {
                total += one;
            }
            expected[row * 32 + i] = total;
        }
    }
    inputs[0] = x;
    outputs[0] = y;
    if (rounds_create(job->threads, &instance)) {
        job->wrong = -1;
        return NULL;
    }
    for (run = 0; run < job->runs; ++run) {
        memset(y, 0, ROUNDS_OUTPUT_0_BYTES);
        if (rounds_run(instance, inputs, outputs) || memcmp(y, expected, ROUNDS_OUTPUT_0_BYTES)) {
            ++job->wrong;
        }
    }
    rounds_destroy(instance);
    free(x);
    free(y);
    free(expected);
    return NULL;
}

int main(int count, char **arguments) {
    int runs = count > 1 ? atoi(arguments[1]) : 1000;
    struct job jobs[2] = {{2, 0, 0.5f, 0}, {3, 0, 0.25f, 0}};
    pthread_t threads[2];
    int i;
    for (i = 0; i < 2; ++i) {
        jobs[i].runs = runs;
        if (pthread_create(&threads[i], NULL, work, &jobs[i])) {
            return 1;
        }
    }
    for (i = 0; i < 2; ++i) {
        pthread_join(threads[i], NULL);
    }
    printf("%d runs, %d wrong\n", 2 * runs, jobs[0].wrong + jobs[1].wrong);
    return jobs[0].wrong || jobs[1].wrong;
}
