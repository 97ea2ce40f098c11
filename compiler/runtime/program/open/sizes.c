/* A model whose runs choose sizes: those that --size gives, those that the shapes of .npy files say, and else the
 * typical ones. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

const char usage_of_sizes[] = "  --size NAME=N           a size of this run; else .npy inputs say it, or it is the typical one\n";

enum source { TYPICAL, GIVEN, READ };

static int64_t sizes[HALOTILE_SYMBOLS];
static enum source sources[HALOTILE_SYMBOLS];
static const char *files[HALOTILE_SYMBOLS]; /* that said so */
static MODEL(shape) chosen;
static halotile_tensor tensors[HALOTILE_INPUTS + HALOTILE_OUTPUTS + 1];
static size_t dims[HALOTILE_DIMS + 1];
static halotile_description model;

static const halotile_tensor *tensor_at(size_t i) {
    const MODEL(description) *told = MODEL(describe)();
    const MODEL(tensor) *from = i < told->input_count ? &told->inputs[i] : &told->outputs[i - told->input_count];
    tensors[i] = (halotile_tensor){from->name, from->dtype, from->rank, NULL, 0, 0, from->dims, from->element_bytes};
    return &tensors[i];
}

/* Shapes, elements and bytes at the chosen sizes. */
static void fill_tensors(void) {
    int64_t numbers[HALOTILE_DIMS + 1];
    size_t at = 0;
    memcpy(&chosen, sizes, sizeof chosen); /* a struct of nothing but these numbers */
    int code = MODEL(shape_dims)(&chosen, numbers);
    if (code != 0) {
        fail(EXIT_ERROR, "%s", MODEL(error_text)(code));
    }
    for (size_t i = 0; i < HALOTILE_INPUTS + HALOTILE_OUTPUTS; ++i) {
        halotile_tensor *tensor = &tensors[i];
        tensor->shape = &dims[at];
        tensor->elements = 1;
        for (size_t d = 0; d < tensor->rank; ++d, ++at) {
            dims[at] = (size_t)numbers[at];
            tensor->elements *= dims[at];
        }
        tensor->bytes = tensor->elements * tensor->element_bytes;
    }
}

const halotile_description *the_model(void) {
    const MODEL(description) *told = MODEL(describe)();
    if (!model.name) {
        for (size_t i = 0; i < HALOTILE_INPUTS + HALOTILE_OUTPUTS; ++i) {
            tensor_at(i);
        }
        for (size_t i = 0; i < HALOTILE_SYMBOLS; ++i) {
            sizes[i] = told->symbols[i].typical;
        }
        model = (halotile_description){told->name, told->version, told->target, told->fingerprint, HALOTILE_INPUTS, tensors,
                                    HALOTILE_OUTPUTS, tensors + HALOTILE_INPUTS, told->weight_bytes, told->max_threads,
                                    told->default_threads};
    }
    return &model;
}

int takes_size(const char *word) { return !strcmp(word, "--size"); }

void take_size(const char *text) {
    const MODEL(description) *told = MODEL(describe)();
    const char *equals = strrchr(text, '=');
    the_model();
    for (size_t i = 0; equals && i < told->symbol_count; ++i) {
        const char *name = told->symbols[i].name;
        if (strlen(name) == (size_t)(equals - text) && !strncmp(name, text, strlen(name))) {
            char *end;
            errno = 0;
            sizes[i] = strtoll(equals + 1, &end, 10);
            if (*end || end == equals + 1 || errno) {
                fail(EXIT_USAGE, "--size %s: give a whole number", text);
            }
            sources[i] = GIVEN;
            return;
        }
    }
    fail(EXIT_USAGE, "--size %s: give NAME=N with the name of an open dimension; --describe lists them", text);
}

/* Whether a dimension is [factor*]name[ + offset]: then *size is that of the name, for a dimension of `given`. */
static int solves(const char *dim, const char *name, int64_t given, int64_t *size) {
    int64_t factor = 1, offset = 0;
    if (strcmp(dim, name) != 0 && isdigit((unsigned char)*dim)) {
        char *end;
        factor = strtoll(dim, &end, 10);
        if (*end != '*') {
            return 0;
        }
        dim = end + 1;
    }
    size_t length = strlen(name);
    if (strncmp(dim, name, length) != 0) {
        return 0;
    }
    dim += length;
    if (*dim) {
        char *end;
        if ((strncmp(dim, " + ", 3) != 0 && strncmp(dim, " - ", 3) != 0) || !isdigit((unsigned char)dim[3])) {
            return 0;
        }
        offset = strtoll(dim + 3, &end, 10) * (dim[1] == '-' ? -1 : 1);
        if (*end) {
            return 0;
        }
    }
    *size = factor ? (given - offset) / factor : 0;
    return factor && (given - offset) % factor == 0;
}

static void read_size(size_t symbol, int64_t size, const char *file) {
    const char *name = MODEL(describe)()->symbols[symbol].name;
    if (sources[symbol] == GIVEN && sizes[symbol] != size) {
        fail(EXIT_ERROR, "%s: by its shape, %s is %lld, and --size says %lld", file, name, (long long)size,
             (long long)sizes[symbol]);
    }
    if (sources[symbol] == READ && sizes[symbol] != size) {
        fail(EXIT_ERROR, "%s: by its shape, %s is %lld, and by that of %s it is %lld", file, name, (long long)size,
             files[symbol], (long long)sizes[symbol]);
    }
    if (sources[symbol] == TYPICAL) {
        sizes[symbol] = size, sources[symbol] = READ, files[symbol] = file;
    }
}

/* Dimensions that are a symbol come first (`plain`), then those that are linear in one. */
static void read_file(const char *file, const halotile_tensor *tensor, int plain) {
    const MODEL(description) *told = MODEL(describe)();
    size_t *found = allocate((tensor->rank + 1) * sizeof *found);
    if (file_dims(file, found, tensor->rank) == tensor->rank) {
        for (size_t d = 0; d < tensor->rank; ++d) {
            for (size_t s = 0; s < told->symbol_count; ++s) {
                int64_t size;
                int same = !strcmp(tensor->dims[d], told->symbols[s].name);
                if (same == plain && (plain || sources[s] == TYPICAL) &&
                    solves(tensor->dims[d], told->symbols[s].name, (int64_t)found[d], &size)) {
                    read_size(s, size, file);
                }
            }
        }
    }
    free(found);
}

void settle_sizes(const struct options *options) {
    the_model();
    for (int plain = 1; plain >= 0; --plain) {
        for (size_t i = 0; i < HALOTILE_INPUTS; ++i) {
            const char *file = options->inputs[i];
            if (file && strcmp(file, "random") != 0 && is_npy(file)) {
                read_file(file, &tensors[i], plain);
            }
        }
    }
    fill_tensors();
}

size_t arena_for(int threads) { return MODEL(arena_bytes_for)(&chosen, threads); }

int start_model(int threads, halotile_instance **instance) { return MODEL(create_for)(threads, &chosen, instance); }

int run_model(halotile_instance *instance, const void *const *inputs, void *const *outputs) {
    return MODEL(run_shape)(instance, &chosen, inputs, outputs);
}

void print_sizes(int json) {
    const MODEL(description) *told = MODEL(describe)();
    fputs(json ? ", \"symbols\": [" : "", stdout);
    for (size_t i = 0; i < told->symbol_count; ++i) {
        const MODEL(symbol) *symbol = &told->symbols[i];
        if (!json) {
            int said = !strncmp(symbol->why, symbol->allowed, strlen(symbol->allowed)); /* the reasons say all of it */
            printf("size %s: %s", symbol->name, said ? symbol->why : symbol->allowed);
            printf(said || !*symbol->why ? "" : " (%s)", symbol->why);
            printf(", typically %lld", (long long)symbol->typical);
            printf(sizes[i] == symbol->typical ? "\n" : ", here %lld\n", (long long)sizes[i]);
            continue;
        }
        fputs(i ? ", {\"name\": " : "{\"name\": ", stdout);
        print_string(symbol->name);
        printf(", \"low\": %lld, \"high\": %lld, \"multiple\": %lld, \"typical\": %lld, \"size\": %lld, \"why\": ",
               (long long)symbol->low, (long long)symbol->high, (long long)symbol->multiple, (long long)symbol->typical,
               (long long)sizes[i]);
        print_string(symbol->why);
        fputs("}", stdout);
    }
    fputs(json ? "]" : "", stdout);
}

/* "4, 10, 3"; with formulas "batch, width, 3] = [4, 10, 3", or both as entries of an object. */
void print_dims(const halotile_tensor *tensor, int json, int formulas) {
    for (size_t i = 0; formulas && !json && i < tensor->rank; ++i) {
        printf("%s%s", i ? ", " : "", tensor->dims[i]);
    }
    fputs(formulas && !json ? "] = [" : "", stdout);
    for (size_t i = 0; i < tensor->rank; ++i) {
        printf("%s%zu", i ? ", " : "", tensor->shape[i]);
    }
    fputs(formulas && json ? "], \"dims\": [" : "", stdout);
    for (size_t i = 0; formulas && json && i < tensor->rank; ++i) {
        fputs(i ? ", " : "", stdout);
        print_string(tensor->dims[i]);
    }
}
