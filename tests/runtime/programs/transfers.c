/* Runs the double-buffered sequence by hand on the reference transfers, and tries what must be refused.
 *
 * usage: transfers sequence STRIPES [NANOSECONDS of computing a stripe] | early | errors
 */
#define _GNU_SOURCE
#include "transfers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINES = 3, LINE = 40, STRIDE = 64, BUFFER = LINES * STRIDE };

static unsigned char scratch[4 * BUFFER + 16];

static struct halotile_transfer part(int buffer, unsigned char *memory, size_t stride) {
    struct halotile_transfer t = {scratch + buffer * BUFFER, memory, LINE, LINES, STRIDE, stride};
    return t;
}

static int expect(const char *what, int got, int wanted) {
    if (got != wanted) {
        printf("%s gives %d instead of %d\n", what, got, wanted);
    }
    return got != wanted;
}

/* y = x + 1, byte by byte; memory has LINES planes of STRIPES * LINE bytes, a stripe being LINE of each. */
static int sequence(int stripes, long computing) {
    size_t plane = (size_t)stripes * LINE;
    unsigned char *x = malloc(LINES * plane), *y = calloc(LINES, plane);
    int load[2], store[2], bad = 0;
    for (size_t i = 0; i < LINES * plane; ++i) {
        x[i] = (unsigned char)(i * 7 + 3);
    }
    bad |= expect("open", halotile_reference_open(scratch, 4 * BUFFER), 0);
    struct halotile_transfer t = part(0, x, plane);
    load[0] = halotile_reference_load(&t);
    for (int k = 0; k < stripes; ++k) {
        bad |= expect("wait load", halotile_reference_wait(load[k % 2]), 0);
        if (k + 1 < stripes) {
            t = part((k + 1) % 2, x + (size_t)(k + 1) * LINE, plane);
            load[(k + 1) % 2] = halotile_reference_load(&t);
        }
        halotile_reference_compute(k);
        struct timespec pause = {0, computing};
        nanosleep(&pause, NULL);
        for (int l = 0; l < LINES; ++l) {
            for (int i = 0; i < LINE; ++i) {
                scratch[(2 + k % 2) * BUFFER + l * STRIDE + i] = scratch[(k % 2) * BUFFER + l * STRIDE + i] + 1;
            }
        }
        if (k) {
            bad |= expect("wait store", halotile_reference_wait(store[(k - 1) % 2]), 0);
        }
        t = part(2 + k % 2, y + (size_t)k * LINE, plane);
        store[k % 2] = halotile_reference_store(&t);
    }
    bad |= expect("last wait", halotile_reference_wait(store[(stripes - 1) % 2]), 0);
    bad |= expect("close", halotile_reference_close(), 0);
    for (size_t i = 0; i < LINES * plane; ++i) {
        bad |= y[i] != (unsigned char)(x[i] + 1);
    }
    static const char *names[] = {"load", "store", "wait load", "wait store", "compute"};
    static struct halotile_event events[1000];
    size_t count = halotile_reference_trace(events, 1000);
    for (size_t i = 0; i < count; ++i) {
        printf("%s %d", names[events[i].kind], events[i].number);
        if (computing) {
            printf(" %.6f %.6f", events[i].issued - events[0].issued, events[i].end - events[0].issued);
        }
        printf("\n");
        bad |= events[i].start > events[i].end || events[i].issued > events[i].start;
    }
    bad |= expect("empty trace", (int)halotile_reference_trace(events, 1000), 0);
    free(x);
    free(y);
    return bad;
}

/* Who reads before waiting finds what is no number. */
static int early(void) {
    unsigned char x[LINES * LINE] = {0};
    int bad = expect("open", halotile_reference_open(scratch, sizeof scratch), 0);
    struct halotile_transfer t = part(0, x, LINE);
    int request = halotile_reference_load(&t);
    bad |= expect("byte before the wait", scratch[5], 0xff);
    bad |= expect("wait", halotile_reference_wait(request), 0);
    bad |= expect("byte after the wait", scratch[5], 0);
    bad |= expect("byte between the lines", scratch[LINE + 1], 0x55);
    return bad | expect("close", halotile_reference_close(), 0);
}

static int errors(void) {
    unsigned char x[LINES * LINE];
    struct halotile_transfer t = part(0, x, LINE), u = t;
    int bad = expect("closed load", halotile_reference_load(&t), HALOTILE_TRANSFER_CLOSED);
    bad |= expect("closed wait", halotile_reference_wait(0), HALOTILE_TRANSFER_CLOSED);
    bad |= expect("closed close", halotile_reference_close(), HALOTILE_TRANSFER_CLOSED);
    bad |= expect("open", halotile_reference_open(scratch, BUFFER), 0);
    bad |= expect("second open", halotile_reference_open(scratch, BUFFER), HALOTILE_TRANSFER_OVERLAP);
    u.scratch = scratch - 1;
    bad |= expect("before", halotile_reference_load(&u), HALOTILE_TRANSFER_BOUNDS);
    u.scratch = scratch + BUFFER - (2 * STRIDE + LINE) + 1;
    bad |= expect("after", halotile_reference_store(&u), HALOTILE_TRANSFER_BOUNDS);
    u.scratch = scratch + BUFFER - (2 * STRIDE + LINE);
    int request = halotile_reference_load(&u);
    bad |= expect("just inside", request >= 0, 1);
    bad |= expect("overlap", halotile_reference_load(&t), HALOTILE_TRANSFER_OVERLAP);
    bad |= expect("store of what is being loaded", halotile_reference_store(&t), HALOTILE_TRANSFER_OVERLAP);
    bad |= expect("unknown", halotile_reference_wait(request + 1), HALOTILE_TRANSFER_UNKNOWN);
    bad |= expect("wait", halotile_reference_wait(request), 0);
    bad |= expect("twice", halotile_reference_wait(request), HALOTILE_TRANSFER_UNKNOWN);
    bad |= expect("load", halotile_reference_load(&t) >= 0, 1);
    return bad | expect("not awaited", halotile_reference_close(), HALOTILE_TRANSFER_PENDING);
}

int main(int argc, char **argv) {
    memset(scratch, 0x55, sizeof scratch);
    if (argc >= 3 && strcmp(argv[1], "sequence") == 0) {
        return sequence(atoi(argv[2]), argc > 3 ? atol(argv[3]) : 0);
    }
    if (argc == 2 && strcmp(argv[1], "early") == 0) {
        return early();
    }
    return argc == 2 && strcmp(argv[1], "errors") == 0 ? errors() : 2;
}
