/* Makes weights in the form of one level of processors from those in the file, step by step. */
#define _GNU_SOURCE
#include "forms.h"

#include <pthread.h>
#include <string.h>

#include "arena.h"
#include "model.h"

const void *halotile_made;

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static size_t instances;

enum { PIECE = 512 }; /* sums of a transform at a time: they fit the first level of cache */

/* Copies the nest from axis `axis` on, and gives the end of what it has written. */
static uint32_t *nest(const struct halotile_step *step, int axis, const uint32_t *from, uint32_t *to) {
    int64_t count = axis < step->rank ? step->dims[axis] : 1;
    int64_t stride = axis < step->rank ? step->strides[axis] : 0;
    if (axis + 1 < step->rank) {
        for (int64_t i = 0; i < count; ++i) {
            to = nest(step, axis + 1, from + i * stride, to);
        }
        return to;
    }
    for (int64_t i = 0; i < count; ++i) {
        to[i] = from[i * stride];
    }
    return to + count;
}

static void runs(const struct halotile_step *step, const int32_t *starts, const uint32_t *from, uint32_t *to) {
    int64_t length = step->dims[1], stride = step->strides[0];
    for (int64_t run = 0; run < step->dims[0]; ++run, to += length) {
        if (starts[run] < 0) {
            memset(to, 0, (size_t)length * sizeof *to);
            continue;
        }
        for (int64_t i = 0; i < length; ++i) {
            to[i] = from[starts[run] + i * stride];
        }
    }
}

static void transform(const struct halotile_step *step, const float *from, float *to) {
    int64_t rows = step->dims[0], terms = step->dims[1], size = step->dims[2];
    double sums[PIECE];
    for (int64_t begin = 0; begin < size; begin += PIECE) {
        int64_t count = size - begin < PIECE ? size - begin : PIECE;
        for (int64_t row = 0; row < rows; ++row) {
            memset(sums, 0, sizeof sums);
            for (int64_t term = 0; term < terms; ++term) {
                double factor = step->factors[row * terms + term];
                const float *plane = from + term * size + begin;
                for (int64_t i = 0; factor != 0 && i < count; ++i) {
                    sums[i] += factor * plane[i];
                }
            }
            for (int64_t i = 0; i < count; ++i) {
                to[row * size + begin + i] = (float)sums[i];
            }
        }
    }
}

static int make(const struct halotile_form *form, const void *file, void *made) {
    void *first = form->first ? halotile_arena_map(form->first) : NULL;
    void *second = form->second ? halotile_arena_map(form->second) : NULL;
    int enough = (first || !form->first) && (second || !form->second);
    void *memory[] = {(void *)file, made, first, second};
    for (size_t i = 0; enough && i < form->count; ++i) {
        const struct halotile_step *step = &form->steps[i];
        const uint32_t *from = (const uint32_t *)memory[step->of] + step->source;
        uint32_t *to = (uint32_t *)memory[step->to] + step->target;
        if (step->factors) {
            transform(step, (const float *)(const void *)from, (float *)(void *)to);
        } else if (step->starts >= 0) {
            runs(step, (const int32_t *)(const void *)((const unsigned char *)file + step->starts), from, to);
        } else {
            nest(step, 0, from, to);
        }
    }
    if (first) {
        halotile_arena_unmap(first, form->first);
    }
    if (second) {
        halotile_arena_unmap(second, form->second);
    }
    return enough ? HALOTILE_OK : HALOTILE_ERROR_MEMORY;
}

int halotile_form_take(const struct halotile_form *form, const void *file) {
    int code = HALOTILE_OK;
    if (!form->count) {
        return code;
    }
    pthread_mutex_lock(&turn);
    if (!instances) {
        void *made = halotile_arena_map(form->bytes);
        code = made ? make(form, file, made) : HALOTILE_ERROR_MEMORY;
        if (made && code != HALOTILE_OK) {
            halotile_arena_unmap(made, form->bytes);
        }
        halotile_made = code == HALOTILE_OK ? made : NULL;
    }
    instances += code == HALOTILE_OK;
    pthread_mutex_unlock(&turn);
    return code;
}

void halotile_form_drop(const struct halotile_form *form) {
    if (!form->count) {
        return;
    }
    pthread_mutex_lock(&turn);
    if (--instances == 0) {
        halotile_arena_unmap((void *)halotile_made, form->bytes);
        halotile_made = NULL;
    }
    pthread_mutex_unlock(&turn);
}
