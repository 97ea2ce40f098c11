/* What a stream is made of, for the files that lay it out and run it. */
#ifndef HALOTILE_MACHINE_H
#define HALOTILE_MACHINE_H

#include "model.h"
#include "stream.h"

#define PLAN (&halotile_stream_plan)

struct halotile_stream {
    struct halotile_instance *instance;
    int owned; /* the memory is not the caller's */
    int level, failed;
    int64_t slots; /* steps whose rows may wait */
    int64_t given; /* rows of the first input */
    int64_t step, steps, height;
    int64_t *pulled;       /* rows of each output */
    void **inputs[2];      /* of a step, states as they change places */
    void **outputs[2];
    unsigned char **wait;  /* for each output that streams, its steps that wait */
    struct halotile_gathered *gathered;
};

static inline size_t halotile_aligned_bytes(size_t bytes) {
    return (bytes + HALOTILE_ALIGNMENT - 1) / HALOTILE_ALIGNMENT * HALOTILE_ALIGNMENT;
}

/* Steps whose rows may wait where so many rows of the image may. */
int64_t halotile_slots_for(int64_t rows);
/* Lays a stream out in a block, or with `start` NULL says how many bytes it takes, the arena apart. */
size_t halotile_lay_out(unsigned char *start, int64_t slots);

#endif
