/* Statistics of all rows, in doubles and in one order of operations, which is that of compiler/stream/statistics.py.
 * No product shares a statement with a sum: a compiler may not make one instruction of them. */
#include <math.h>
#include <string.h>

#include "stream.h"

static int has_two(const struct halotile_statistic *about) {
    return about->kind == HALOTILE_STANDARDISE || about->kind == HALOTILE_CENTRE;
}

size_t halotile_gathered_doubles(const struct halotile_statistic *about) {
    return 2 * about->elements + 2 * about->kept;
}

void halotile_gathered_place(struct halotile_gathered *gathered, const struct halotile_statistic *about, double *at) {
    gathered->first = at;
    gathered->second = at + about->elements;
    gathered->mean = at + 2 * about->elements;
    gathered->squares = gathered->mean + about->kept;
}

void halotile_gathered_start(struct halotile_gathered *gathered, const struct halotile_statistic *about) {
    double start = about->kind == HALOTILE_MAX ? -HUGE_VAL : about->kind == HALOTILE_MIN ? HUGE_VAL : 0;
    for (size_t i = 0; i < about->elements; ++i) {
        gathered->first[i] = start;
        gathered->second[i] = 0;
    }
    gathered->rows = 0;
}

/* The larger or smaller one; what is no number stays. */
static double extreme(enum halotile_statistic_kind kind, double a, double b) {
    if (a != a) {
        return a;
    }
    return (kind == HALOTILE_MAX ? a >= b : a <= b) ? a : b;
}

void halotile_gathered_add(struct halotile_gathered *gathered, const struct halotile_statistic *about,
                           const float *first, const float *second, int64_t count) {
    if (!count) {
        return;
    }
    double before = (double)gathered->rows, total = (double)(gathered->rows + count), rows = (double)count;
    double part = rows / total, both = before * rows;
    both = both / total;
    for (size_t i = 0; i < about->elements; ++i) {
        double found = (double)first[i];
        if (about->kind == HALOTILE_MAX || about->kind == HALOTILE_MIN) {
            gathered->first[i] = extreme(about->kind, gathered->first[i], found);
        } else if (!has_two(about)) {
            gathered->first[i] += found;
        } else {
            double away = found - gathered->first[i];
            double moved = away * part, square = away * away;
            square = square * both;
            gathered->first[i] += moved;
            square = (double)second[i] + square;
            gathered->second[i] += square;
        }
    }
    gathered->rows += count;
}

/* Which element of the result the elements of a row belong to, one after the other. */
struct walk {
    size_t index[16], place;
};

static void next(const struct halotile_statistic *about, struct walk *walk) {
    size_t stride = 1;
    for (size_t a = about->rank; a-- > 0;) {
        size_t step = about->reduced[a] ? 0 : stride;
        if (++walk->index[a] < about->shape[a]) {
            walk->place += step;
            return;
        }
        walk->index[a] = 0;
        walk->place -= step * (about->shape[a] - 1);
        stride *= about->reduced[a] ? 1 : about->shape[a];
    }
}

static void add_up(const struct halotile_statistic *about, const double *row, double *result) {
    struct walk walk = {{0}, 0};
    double start = about->kind == HALOTILE_MAX ? -HUGE_VAL : about->kind == HALOTILE_MIN ? HUGE_VAL : 0;
    for (size_t k = 0; k < about->kept; ++k) {
        result[k] = start;
    }
    for (size_t i = 0; i < about->elements; ++i, next(about, &walk)) {
        if (about->kind == HALOTILE_MAX || about->kind == HALOTILE_MIN) {
            result[walk.place] = extreme(about->kind, result[walk.place], row[i]);
        } else {
            result[walk.place] += row[i];
        }
    }
}

void halotile_gathered_numbers(const struct halotile_gathered *gathered, const struct halotile_statistic *about,
                               float *const *numbers) {
    double columns = (double)(about->elements / about->kept), rows = (double)gathered->rows, count = rows * columns;
    struct walk walk = {{0}, 0};
    double *mean = gathered->mean, *squares = gathered->squares;
    add_up(about, gathered->first, mean);
    if (!has_two(about)) {
        for (size_t k = 0; k < about->kept; ++k) {
            numbers[0][k] = (float)(about->kind == HALOTILE_MEAN ? mean[k] / count : mean[k]);
        }
        return;
    }
    add_up(about, gathered->second, squares);
    for (size_t k = 0; k < about->kept; ++k) {
        mean[k] = mean[k] / columns;
    }
    double *away = gathered->second; /* what it held is added up */
    for (size_t i = 0; i < about->elements; ++i, next(about, &walk)) {
        double far = gathered->first[i] - mean[walk.place];
        away[i] = far * far;
    }
    for (size_t k = 0; k < about->kept; ++k) {
        float near = (float)mean[k];
        numbers[0][k] = near;
        numbers[1][k] = (float)(mean[k] - (double)near);
    }
    if (about->kind == HALOTILE_STANDARDISE) {
        add_up(about, away, mean);
        for (size_t k = 0; k < about->kept; ++k) {
            double more = rows * mean[k], variance = squares[k] + more;
            variance = variance / count;
            numbers[2][k] = (float)(1 / sqrt(variance + about->epsilon));
        }
    }
}
