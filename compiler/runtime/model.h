/* What a model's generated file tells the runtime, and the error codes that both sides share. */
#ifndef HALOTILE_MODEL_H
#define HALOTILE_MODEL_H

#include <stddef.h>
#include <stdint.h>

#define HALOTILE_ALIGNMENT 64 /* of the arena, of every offset in it and of the weights */

enum halotile_code {
    HALOTILE_OK = 0,
    HALOTILE_ERROR_ARGUMENT = 1,
    HALOTILE_ERROR_THREADS = 2,
    HALOTILE_ERROR_MEMORY = 3,
    HALOTILE_ERROR_ARENA = 4,
    HALOTILE_ERROR_BUSY = 5,
    HALOTILE_ERROR_KERNEL = 6,
    HALOTILE_ERROR_WORKSPACE = 7,
    HALOTILE_ERROR_SYSTEM = 8,
    HALOTILE_ERROR_PROCESSOR = 9,
    HALOTILE_ERROR_TRANSFER = 10,
    HALOTILE_ERROR_SHAPE = 11, /* of models with open shapes alone */
    HALOTILE_ERROR_FINISHED = 12, /* of streams alone, and those below */
    HALOTILE_ERROR_ROWS = 13,
    HALOTILE_ERROR_HEIGHT = 14,
    HALOTILE_ERROR_PASS = 15
};

/* A size that every run of a model with open shapes chooses, and what it may be. */
struct halotile_symbol {
    const char *name;
    int64_t low, high, multiple;
    const char *must; /* be, in words, with what asks for it */
};

/* What the sizes of a run must satisfy together: a left side is, is at least, is at most, or is 1 or a right side. */
enum halotile_relation { HALOTILE_EQUAL, HALOTILE_AT_LEAST, HALOTILE_AT_MOST, HALOTILE_ONE_OR };

struct halotile_condition {
    const char *left;
    const char *must; /* be, in words: "at most 512" */
    const char *why;
    const char *fits; /* which sizes do: "; any multiple of 32 fits as h", or nothing */
    enum halotile_relation relation;
    int varies; /* with the sizes: the right side */
};

/* What a model with open shapes has in place of fixed numbers. The facts of a shape are the bytes of the arena's planned
 * part and of a worker's workspace, all dimensions of all inputs and outputs, and what the compiled function adds for
 * itself. */
struct halotile_open {
    size_t symbol_count;
    size_t dim_count;
    size_t fact_count;
    const struct halotile_symbol *symbols;
    /* Fills the facts of a shape whose symbols are what they may be; 1 for a tensor with too many elements. */
    int32_t (*shapes)(const int64_t *symbols, int64_t *facts);
    int32_t (*call)(const void *const *inputs, void *const *outputs, const void *weights, void *arena,
                    const int64_t *symbols, const int64_t *facts);
    size_t condition_count;
    const struct halotile_condition *conditions;
    int64_t (*side)(const int64_t *symbols, size_t number); /* left ones are even, right ones odd */
};

struct halotile_model {
    /* Spreads the pointers over the arguments of the compiled function; 0 is success. */
    int32_t (*call)(const void *const *inputs, void *const *outputs, const void *weights, void *arena);
    /* Whether this processor has the instructions that the kernels use. */
    int (*processor_fits)(void);
    const void *weights;
    size_t input_count;
    size_t output_count;
    size_t planned_bytes;   /* intermediates; offsets fixed at compile time */
    size_t workspace_bytes; /* scratch of one worker; follows the planned part, once for each thread */
    int max_threads;
    int default_threads; /* 0: as many as this process may use */
    size_t timers;       /* kernels that are timed: 0, or all */
    int flush_denormals; /* floats below the normal ones count as zero, in operands and results */
    const struct halotile_open *open; /* NULL: every shape is fixed */
    int (*take_weights)(void); /* makes those that are not in the file, when the first instance reads them */
    void (*drop_weights)(void); /* gives their memory back behind the last; both NULL where all are in the file */
};

extern const struct halotile_model halotile_model;

#endif
