/* A program that multiplies on the matrix unit, in one of several situations; the outputs go to the file y.
 *
 *   signals   a timer's signal arrives every half millisecond: equal runs give equal bits. What a run leaves of the unit
 *             in its thread is printed
 *   early     the instance runs in a thread that was there before the library asked for the unit
 *   narrow    a signal stack is too small for the unit's registers, so that Linux doesn't grant them
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "product.h"

static float x[PRODUCT_INPUT_0_ELEMENTS], y[PRODUCT_OUTPUT_0_ELEMENTS], again[PRODUCT_OUTPUT_0_ELEMENTS];
static product_instance *instance;
static pthread_mutex_t made = PTHREAD_MUTEX_INITIALIZER;
static volatile sig_atomic_t signals;

static void tick(int number) { signals += number == SIGALRM; }

static int run(float *result) {
    const void *inputs[PRODUCT_INPUTS];
    void *outputs[PRODUCT_OUTPUTS];
    inputs[0] = x;
    outputs[0] = result;
    return product_run(instance, inputs, outputs);
}

/* Bits 17 and 18 of XINUSE: the unit's configuration and its registers. */
static unsigned in_use(void) {
    unsigned a = 0, b, c, d = 0;
    if (!__get_cpuid_count(13, 1, &a, &b, &c, &d) || !(a >> 2 & 1)) {
        return 0;
    }
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(1));
    return a >> 17 & 3;
}

static void *late(void *unused) {
    pthread_mutex_lock(&made);
    return run(y) == PRODUCT_OK ? unused : &instance;
}

static int with_signals(void) {
    struct sigaction action;
    struct itimerval each;
    int i, wrong = 0;
    memset(&action, 0, sizeof action);
    action.sa_handler = tick;
    sigaction(SIGALRM, &action, NULL);
    memset(&each, 0, sizeof each);
    each.it_interval.tv_usec = each.it_value.tv_usec = 500;
    setitimer(ITIMER_REAL, &each, NULL);
    for (i = 0; i < 100000 && signals < 100; ++i) {
        memset(again, 0, sizeof again);
        wrong += run(again) != PRODUCT_OK || memcmp(y, again, sizeof y) != 0;
    }
    printf("%d wrong, in use %u\n", wrong, in_use());
    return signals < 100;
}

int main(int argc, char **argv) {
    static char narrow[2048];
    const char *how = argc > 1 ? argv[1] : "";
    pthread_t thread;
    void *failed = NULL;
    FILE *file;
    int i, code;
    for (i = 0; i < (int)PRODUCT_INPUT_0_ELEMENTS; ++i) {
        x[i] = (float)(i * 37 % 101 - 50) / 64.0f;
    }
    if (strcmp(how, "narrow") == 0) {
        stack_t stack;
        memset(&stack, 0, sizeof stack);
        stack.ss_sp = narrow;
        stack.ss_size = sizeof narrow;
        if (sigaltstack(&stack, NULL) != 0) {
            return 3;
        }
    }
    pthread_mutex_lock(&made);
    if (strcmp(how, "early") == 0 && pthread_create(&thread, NULL, late, NULL) != 0) {
        return 4;
    }
    code = product_create(3, &instance);
    if (code != PRODUCT_OK) {
        puts(product_error_text(code));
        return code == PRODUCT_ERROR_PROCESSOR ? 0 : 5;
    }
    pthread_mutex_unlock(&made);
    if (strcmp(how, "early") == 0) {
        pthread_join(thread, &failed);
        code = failed ? 1 : 0;
    } else {
        code = run(y);
    }
    if (code == PRODUCT_OK && strcmp(how, "signals") == 0) {
        code = with_signals();
    }
    product_destroy(instance);
    file = fopen("y", "wb");
    if (!file || fwrite(y, sizeof y, 1, file) != 1 || fclose(file) != 0) {
        return 6;
    }
    return code;
}
