/* Shapes that every run chooses. A check compares each symbol with its bounds; what follows from a shape is a closed
 * formula of the compiled code. Nothing is allocated but by the instance's creation.
 */
#define _GNU_SOURCE
#include "shapes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model.h"
#include "state.h"

/* Of the last shape that this thread had refused. Short, since where thread-local storage is placed when the process
 * starts, a process has room for some 1,600 bytes in the libraries that it loads later. */
static _Thread_local char text[224];

__attribute__((format(printf, 1, 2))) static int refuse(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(text, sizeof text, format, arguments) >= (int)sizeof text) {
        memcpy(text + sizeof text - 4, "...", 4);
    }
    va_end(arguments);
    return HALOTILE_ERROR_SHAPE;
}

static int refuse_symbol(const struct halotile_symbol *symbol, long long given) {
    if (given > symbol->high && symbol->high + symbol->multiple > INT32_MAX) { /* nothing else bounds it */
        return refuse("%.64s is %lld, and kernels count to %lld", symbol->name, given, (long long)symbol->high);
    }
    return refuse("%.64s is %lld, and must be %s", symbol->name, given, symbol->must);
}

static int holds(enum halotile_relation relation, int64_t left, int64_t right) {
    switch (relation) {
    case HALOTILE_EQUAL: return left == right;
    case HALOTILE_AT_LEAST: return left >= right;
    case HALOTILE_AT_MOST: return left <= right;
    case HALOTILE_ONE_OR: return left == 1 || left == right;
    }
    return 0;
}

static int check_conditions(const int64_t *symbols) {
    const struct halotile_open *open = halotile_model.open;
    for (size_t i = 0; i < open->condition_count; ++i) {
        const struct halotile_condition *condition = &open->conditions[i];
        long long left = open->side(symbols, 2 * i), right = open->side(symbols, 2 * i + 1);
        if (!holds(condition->relation, left, right)) {
            char here[32] = "";
            snprintf(here, sizeof here, condition->varies ? ", here %lld" : "", right);
            return refuse("%.80s is %lld, and must be %.80s%s%.60s (%s)", condition->left, left, condition->must, here,
                          condition->fits, condition->why);
        }
    }
    return HALOTILE_OK;
}

int halotile_shape_facts(const int64_t *symbols, int64_t *facts) {
    const struct halotile_open *open = halotile_model.open;
    for (size_t i = 0; i < open->symbol_count; ++i) {
        const struct halotile_symbol *symbol = &open->symbols[i];
        if (symbols[i] < symbol->low || symbols[i] > symbol->high || symbols[i] % symbol->multiple) {
            return refuse_symbol(symbol, symbols[i]);
        }
    }
    if (open->shapes(symbols, facts) != 0 || facts[0] < 0) {
        return refuse("a tensor would have more than %ld elements at this shape", (long)INT32_MAX);
    }
    if (check_conditions(symbols) != HALOTILE_OK) {
        return HALOTILE_ERROR_SHAPE;
    }
    for (size_t i = 0; i < open->dim_count; ++i) {
        if (facts[2 + i] < 0) {
            return refuse("a dimension of a tensor would be %lld at this shape", (long long)facts[2 + i]);
        }
    }
    return HALOTILE_OK;
}

/* The arena's bytes; more than any process can address where they are. */
static uint64_t arena_bytes(const int64_t *facts, int threads) {
    return (uint64_t)facts[0] + (uint64_t)threads * (uint64_t)facts[1];
}

size_t halotile_arena_bytes_for(const int64_t *facts, int threads) {
    threads = halotile_decide_threads(threads);
    uint64_t bytes = arena_bytes(facts, threads);
    return threads && bytes <= PTRDIFF_MAX ? (size_t)bytes : 0;
}

size_t halotile_tensor_bytes(const int64_t *dims, size_t rank, size_t element_bytes) {
    uint64_t bytes = element_bytes;
    for (size_t i = 0; i < rank; ++i) {
        bytes *= (uint64_t)dims[i];
    }
    return bytes <= PTRDIFF_MAX ? (size_t)bytes : 0;
}

int halotile_create_for(int threads, const int64_t *facts, const struct halotile_memory *arena,
                        struct halotile_instance **instance) {
    *instance = NULL;
    int decided = halotile_decide_threads(threads);
    if (decided && arena_bytes(facts, decided) > PTRDIFF_MAX) {
        return HALOTILE_ERROR_MEMORY;
    }
    struct halotile_needs needs = {(size_t)facts[0], (size_t)facts[1]};
    return halotile_make(threads, &needs, arena, instance);
}

/* Makes the instance's facts those of a shape, unless they are, or refuses it. */
static int settle(struct halotile_instance *instance, const int64_t *symbols) {
    const struct halotile_open *open = halotile_model.open;
    int64_t *facts = instance->shape + open->symbol_count;
    size_t bytes = open->symbol_count * sizeof *symbols;
    if (instance->settled && memcmp(instance->shape, symbols, bytes) == 0) {
        return HALOTILE_OK;
    }
    instance->settled = 0;
    int code = halotile_shape_facts(symbols, facts);
    if (code != HALOTILE_OK) {
        return code;
    }
    uint64_t needed = arena_bytes(facts, instance->pool.threads);
    if (needed > instance->arena_bytes) {
        return refuse("this shape needs an arena of %llu bytes, and the instance has %llu; create it for the largest shape",
                      (unsigned long long)needed, (unsigned long long)instance->arena_bytes);
    }
    struct halotile_needs needs = {(size_t)facts[0], (size_t)facts[1]};
    halotile_place_workspaces(instance, &needs);
    memcpy(instance->shape, symbols, bytes);
    instance->settled = 1;
    return HALOTILE_OK;
}

int halotile_run_shape(struct halotile_instance *instance, const int64_t *symbols, const void *const *inputs,
                       void *const *outputs) {
    int code = halotile_begin(instance, inputs, outputs);
    if (code != HALOTILE_OK) {
        return code;
    }
    code = settle(instance, symbols);
    if (code == HALOTILE_OK) {
        code = halotile_compute(instance, inputs, outputs);
    }
    halotile_end(instance);
    return code;
}

const char *halotile_shape_text(void) { return text[0] ? text : "the model does not take this shape"; }
