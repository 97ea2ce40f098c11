/* The reference implementation of transfers: one thread for each open scratchpad copies requests in their order.
 *
 * A load first makes its destination NaN and copies later, so that whoever reads before waiting sees it.
 */
#define _GNU_SOURCE
#include "transfers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef HALOTILE_TRANSFER_DELAY_NS
#define HALOTILE_TRANSFER_DELAY_NS 0 /* before each copy; tests set it */
#endif

enum { ROOM = 1024, EVENTS = 8192 };

struct request {
    struct halotile_transfer what;
    int store;
    int number; /* among the loads, or the stores */
    int used;   /* started and not yet awaited */
    int done;
    double issued, start, end;
};

struct engine {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned char *scratch;
    size_t bytes;
    int stop;
    struct request requests[ROOM];
    int queue[ROOM]; /* requests in the order of their start */
    int first, count;
    int loads, stores;
    struct halotile_event events[EVENTS];
    size_t event_count;
    int computing; /* index of the compute event under way, or -1 */
};

static _Thread_local struct engine *current;

static pthread_mutex_t finished_lock = PTHREAD_MUTEX_INITIALIZER;
static struct halotile_event finished[EVENTS];
static size_t finished_count;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void copy(const struct request *r) {
    const struct halotile_transfer *t = &r->what;
    for (size_t i = 0; i < t->lines; ++i) {
        unsigned char *scratch = t->scratch + i * t->scratch_stride, *memory = t->memory + i * t->memory_stride;
        memcpy(r->store ? memory : scratch, r->store ? scratch : memory, t->line_bytes);
    }
}

static void *work(void *argument) {
    struct engine *e = argument;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->count && !e->stop) {
            pthread_cond_wait(&e->changed, &e->lock);
        }
        if (!e->count) {
            break;
        }
        struct request *r = &e->requests[e->queue[e->first]];
        e->first = (e->first + 1) % ROOM;
        --e->count;
        pthread_mutex_unlock(&e->lock);
        struct timespec delay = {0, HALOTILE_TRANSFER_DELAY_NS};
        if (delay.tv_nsec) {
            nanosleep(&delay, NULL);
        }
        double start = now();
        copy(r);
        double end = now();
        pthread_mutex_lock(&e->lock);
        r->start = start, r->end = end, r->done = 1;
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

int halotile_reference_open(void *scratch, size_t bytes) {
    if (current) {
        return HALOTILE_TRANSFER_OVERLAP;
    }
    struct engine *e = calloc(1, sizeof *e);
    if (!e) {
        return HALOTILE_TRANSFER_THREAD;
    }
    e->scratch = scratch, e->bytes = bytes, e->computing = -1;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    if (pthread_create(&e->thread, NULL, work, e) != 0) {
        free(e);
        return HALOTILE_TRANSFER_THREAD;
    }
    current = e;
    return 0;
}

/* What comes next in the program ends the computation. Returns where to note an event, or NULL when there is no room. */
static struct halotile_event *note(struct engine *e, int kind, int number) {
    double time = now();
    if (e->computing >= 0) {
        e->events[e->computing].end = time;
        e->computing = -1;
    }
    if (e->event_count == EVENTS) {
        return NULL;
    }
    struct halotile_event *event = &e->events[e->event_count++];
    event->kind = kind, event->number = number;
    event->issued = event->start = event->end = time;
    return event;
}

static unsigned char *scratch_end(const struct halotile_transfer *t) {
    return t->scratch + (t->lines ? (t->lines - 1) * t->scratch_stride + t->line_bytes : 0);
}

/* Lines interleave when buffers lie side by side, so only what each line covers counts. */
static int overlap(const struct halotile_transfer *a, const struct halotile_transfer *b) {
    if (scratch_end(a) <= b->scratch || scratch_end(b) <= a->scratch) {
        return 0;
    }
    for (size_t i = 0; i < a->lines; ++i) {
        unsigned char *p = a->scratch + i * a->scratch_stride;
        for (size_t j = 0; j < b->lines; ++j) {
            unsigned char *q = b->scratch + j * b->scratch_stride;
            if (p < q + b->line_bytes && q < p + a->line_bytes) {
                return 1;
            }
        }
    }
    return 0;
}

static int check(const struct engine *e, const struct halotile_transfer *t, int store) {
    if (t->scratch < e->scratch || t->scratch > e->scratch + e->bytes || scratch_end(t) > e->scratch + e->bytes ||
        t->scratch_stride < t->line_bytes) {
        return HALOTILE_TRANSFER_BOUNDS;
    }
    for (int i = 0; i < ROOM; ++i) {
        const struct request *r = &e->requests[i];
        if (r->used && !(store && r->store) && overlap(t, &r->what)) {
            return HALOTILE_TRANSFER_OVERLAP;
        }
    }
    return 0;
}

static int start(const struct halotile_transfer *t, int store) {
    struct engine *e = current;
    if (!e) {
        return HALOTILE_TRANSFER_CLOSED;
    }
    pthread_mutex_lock(&e->lock);
    int slot = 0, code = check(e, t, store);
    while (slot < ROOM && e->requests[slot].used) {
        ++slot;
    }
    if (code == 0 && slot == ROOM) {
        code = HALOTILE_TRANSFER_FULL;
    }
    if (code == 0) {
        struct request *r = &e->requests[slot];
        memset(r, 0, sizeof *r);
        r->what = *t, r->store = store, r->used = 1;
        r->number = store ? e->stores++ : e->loads++;
        struct halotile_event *event = note(e, store ? HALOTILE_EVENT_STORE : HALOTILE_EVENT_LOAD, r->number);
        r->issued = event ? event->issued : now();
        for (size_t i = 0; !store && i < t->lines; ++i) {
            memset(t->scratch + i * t->scratch_stride, 0xff, t->line_bytes);
        }
        e->queue[(e->first + e->count++) % ROOM] = slot;
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    return code == 0 ? slot : code;
}

int halotile_reference_load(const struct halotile_transfer *transfer) { return start(transfer, 0); }

int halotile_reference_store(const struct halotile_transfer *transfer) { return start(transfer, 1); }

int halotile_reference_wait(int request) {
    struct engine *e = current;
    if (!e) {
        return HALOTILE_TRANSFER_CLOSED;
    }
    if (request < 0 || request >= ROOM) {
        return HALOTILE_TRANSFER_UNKNOWN;
    }
    pthread_mutex_lock(&e->lock);
    struct request *r = &e->requests[request];
    int code = r->used ? 0 : HALOTILE_TRANSFER_UNKNOWN;
    if (code == 0) {
        struct halotile_event *event =
            note(e, r->store ? HALOTILE_EVENT_WAIT_STORE : HALOTILE_EVENT_WAIT_LOAD, r->number);
        while (!r->done) {
            pthread_cond_wait(&e->changed, &e->lock);
        }
        r->used = 0;
        if (event) {
            event->end = now();
        }
        for (size_t i = 0; i < e->event_count; ++i) {
            struct halotile_event *of = &e->events[i];
            if (of->kind == (r->store ? HALOTILE_EVENT_STORE : HALOTILE_EVENT_LOAD) && of->number == r->number) {
                of->start = r->start, of->end = r->end;
            }
        }
    }
    pthread_mutex_unlock(&e->lock);
    return code;
}

void halotile_reference_compute(int stripe) {
    struct engine *e = current;
    if (!e) {
        return;
    }
    pthread_mutex_lock(&e->lock);
    struct halotile_event *event = note(e, HALOTILE_EVENT_COMPUTE, stripe);
    e->computing = event ? (int)(event - e->events) : -1;
    pthread_mutex_unlock(&e->lock);
}

static void keep(const struct engine *e) {
    pthread_mutex_lock(&finished_lock);
    size_t room = EVENTS - finished_count, count = e->event_count < room ? e->event_count : room;
    memcpy(finished + finished_count, e->events, count * sizeof *finished);
    finished_count += count;
    pthread_mutex_unlock(&finished_lock);
}

int halotile_reference_close(void) {
    struct engine *e = current;
    int code = 0;
    if (!e) {
        return HALOTILE_TRANSFER_CLOSED;
    }
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < ROOM; ++i) {
        code = e->requests[i].used ? HALOTILE_TRANSFER_PENDING : code;
    }
    e->stop = 1;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    keep(e);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
    free(e);
    current = NULL;
    return code;
}

size_t halotile_reference_trace(struct halotile_event *events, size_t capacity) {
    pthread_mutex_lock(&finished_lock);
    size_t count = capacity < finished_count ? capacity : finished_count;
    if (count) {
        memcpy(events, finished, count * sizeof *events);
        memmove(finished, finished + count, (finished_count - count) * sizeof *finished);
        finished_count -= count;
    }
    pthread_mutex_unlock(&finished_lock);
    return count;
}
