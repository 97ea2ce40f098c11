/* model_run: one model as a program. Its parts, and the few things they share.
 *
 * The program knows the model through its public C API alone; model_api.h, which is generated, names it.
 */
#ifndef HALOTILE_PROGRAM_H
#define HALOTILE_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "model_api.h" /* MODEL(what), model_tensor, model_description, model_instance */

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

void read_options(int count, char **words, struct options *options);
/* Lets the process run on the processors of a list such as 0-3,6 alone. */
void set_affinity(const char *list);

/* Files: .npy, or the bare bytes under any other ending. */
void tensor_read(const char *path, const model_tensor *tensor, void *data);
void tensor_write(const char *path, const model_tensor *tensor, const void *data);

void fill_random(const model_tensor *tensor, void *data, uint64_t seed);

/* Element types that count as numbers here; integers of 64 bits lose digits as doubles and are compared as they are. */
int is_floating(const char *dtype);
double element(const char *dtype, const void *data, size_t index);

struct comparison {
    double error, limit; /* largest difference, and what was allowed */
    size_t wrong;        /* elements beyond */
    size_t worst;        /* index of the largest difference */
};

/* The measure of `halotile verify`: |a - b| <= rtol * max|b| + atol; NaN and infinities in the same places. */
struct comparison compare_tensors(const model_tensor *tensor, const void *data, const void *reference, double rtol,
                                  double atol);

struct timing {
    size_t runs;
    double min, p50, p90, p99, max, mean; /* milliseconds */
};

double now_ms(void);
struct timing summarise(double *milliseconds, size_t runs); /* sorts them */

/* Results in words or as JSON, on stdout. */
void print_string(const char *text); /* quoted for JSON */
void tensors_print(const char *kind, const model_tensor *tensors, size_t count, int json);
void print_model(const model_description *model, int threads, int json);
void print_timing(const struct timing *timing, long warmup, int json);
void print_outputs(const model_description *model, void *const *outputs, int json);

#endif
