/* model_run: one model as a program. Its parts, and the few things they share.
 *
 * The program knows the model through its public C API alone; model_api.h, which is generated, names it.
 */
#ifndef HALOTILE_PROGRAM_H
#define HALOTILE_PROGRAM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "model_api.h" /* MODEL(what), halotile_tensor, halotile_description, halotile_instance */

enum { EXIT_FINE = 0, EXIT_ERROR = 1, EXIT_USAGE = 2, EXIT_DIFFERS = 3 };

/* Prints one line, "model_run: ...", and ends the program. */
_Noreturn void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Zeroed memory aligned to 64 bytes; ends the program when there is none. */
void *allocate(size_t bytes);

struct options {
    int describe, bench, json;
    int threads; /* 0: the model's default */
    long warmup, runs;
    unsigned long seed;
    double rtol, atol;
    const char *affinity;
    const char **inputs;   /* a file for each input; NULL: random */
    const char **outputs;  /* a file for each output; NULL: none */
    const char **expected; /* a reference for each output; NULL: none */
};

/* The model, with the sizes of this run where it leaves them open: sizes.c of fixed/ or of open/. Tensors have shapes,
 * elements and bytes after settle_sizes. */
extern const char usage_of_sizes[];
const halotile_description *the_model(void);
int takes_size(const char *word);  /* whether the word is an option that gives a size; */
void take_size(const char *text);  /* its value */
void settle_sizes(const struct options *options);
size_t arena_for(int threads);
int start_model(int threads, halotile_instance **instance);
int run_model(halotile_instance *instance, const void *const *inputs, void *const *outputs);
void print_sizes(int json);
void print_dims(const halotile_tensor *tensor, int json, int formulas);

/* Images of any height, row by row: stream.c of rows/ for a library that streams, of whole/ for others. */
extern const char usage_of_stream[];
int run_stream(int count, char **words); /* the program with --stream; gives its exit code */
void print_stream(int threads, int json);

const char *value_of(int count, char **words, int *at); /* of the option words[*at] */
long whole_number(const char *option, const char *text, long least, long most);
/* "name=file" or, where there is one tensor only, "file", to the tensor's place in `files`. */
void bind_file(const char *kind, const char *text, const halotile_tensor *tensors, size_t count, const char **files);
void read_options(int count, char **words, struct options *options);
/* Lets the process run on the processors of a list such as 0-3,6 alone. */
void set_affinity(const char *list);

/* Files: .npy, or the bare bytes under any other ending. */
int is_npy(const char *path);
/* The dimensions that the header of a .npy says, `room` of them at most; gives their number. */
size_t file_dims(const char *path, size_t *dims, size_t room);
void tensor_read(const char *path, const halotile_tensor *tensor, void *data);
void tensor_write(const char *path, const halotile_tensor *tensor, const void *data);

void fill_random(const halotile_tensor *tensor, void *data, uint64_t seed);

/* Element types that count as numbers here; integers of 64 bits lose digits as doubles and are compared as they are. */
int is_floating(const char *dtype);
double element(const char *dtype, const void *data, size_t index);

struct comparison {
    double error, limit; /* largest difference, and what was allowed */
    size_t wrong;        /* elements beyond */
    size_t worst;        /* index of the largest difference */
};

/* The measure of `halotile verify`: |a - b| <= rtol * max|b| + atol; NaN and infinities in the same places. */
struct comparison compare_tensors(const halotile_tensor *tensor, const void *data, const void *reference, double rtol,
                                  double atol);

struct timing {
    size_t runs;
    double min, p50, p90, p99, max, mean; /* milliseconds */
};

double now_ms(void);
struct timing summarise(double *milliseconds, size_t runs); /* sorts them */

/* Results in words or as JSON, on stdout. */
void print_string(const char *text); /* quoted for JSON */
void tensors_print(const char *kind, const halotile_tensor *tensors, size_t count, int json);
void print_model(const halotile_description *model, int threads, int json);
void print_timing(const struct timing *timing, long warmup, int json);
void print_outputs(const halotile_description *model, void *const *outputs, int json);

#endif
