/* Two instances in two threads, each at shapes in turn, some of them refused. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "open_net.h"

#define MOST_WIDTH 64
#define MOST_BATCH 9

static int runs[2], wrong[2];

static void *work(void *number) {
    static float all_x[2][MOST_BATCH * MOST_WIDTH * 3], all_m[2][MOST_WIDTH], all_y[2][MOST_BATCH * (2 * MOST_WIDTH + 1)];
    long me = (long)number, run, b, i;
    float *x = all_x[me], *m = all_m[me], *y = all_y[me];
    const void *inputs[2] = {x, m};
    void *outputs[1] = {y};
    open_net_shape most = {MOST_BATCH, MOST_WIDTH};
    open_net_instance *instance;
    if (open_net_create_for(3, &most, &instance)) {
        wrong[me] = 1;
        return NULL;
    }
    for (i = 0; i < MOST_BATCH * MOST_WIDTH * 3; ++i) {
        x[i] = (float)(i % 13);
    }
    for (i = 0; i < MOST_WIDTH; ++i) {
        m[i] = (float)(i % 7);
    }
    for (run = 0; run < 300; ++run) {
        open_net_shape shape = {1 + run % MOST_BATCH, 2 * (run % 33)};
        open_net_shape refused = {1, 2 * run + 1};
        long w = (long)shape.width;
        char text[64];
        snprintf(text, sizeof text, "width is %ld, ", 2 * run + 1);
        if (open_net_run_shape(instance, &refused, inputs, outputs) != OPEN_NET_ERROR_SHAPE ||
            strncmp(open_net_error_text(OPEN_NET_ERROR_SHAPE), text, strlen(text)) != 0) {
            ++wrong[me];
        }
        if (open_net_run_shape(instance, &shape, inputs, outputs)) {
            ++wrong[me];
        }
        for (b = 0; b < (long)shape.batch; ++b) {
            for (i = 0; i < w; ++i) {
                const float *at = x + (b * w + i) * 3;
                wrong[me] += y[b * (2 * w + 1) + i] != m[i] * (at[0] + at[1] + at[2]);
            }
        }
        ++runs[me];
    }
    open_net_destroy(instance);
    return NULL;
}

int main(void) {
    pthread_t other;
    if (pthread_create(&other, NULL, work, (void *)1)) {
        return 1;
    }
    work((void *)0);
    pthread_join(other, NULL);
    printf("%d runs, %d wrong\n", runs[0] + runs[1], wrong[0] + wrong[1]);
    return 0;
}
