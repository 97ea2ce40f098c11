/* A network in steps, as the compiler tells of it, and the machine that runs them: rows in, rows out.
 *
 *     image   rows [t R, (t + 1) R) come with step t
 *     value   rows [t C - D, (t + 1) C - D) are made in it: C rows a step (count), D rows behind (delay)
 *
 * All memory of a stream is one block, whose size does not depend on the height of the image: what steps take and give,
 * states, and steps whose rows wait to be pulled.
 */
#ifndef HALOTILE_STREAM_H
#define HALOTILE_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "instance.h"

#define HALOTILE_NO_HEIGHT ((int64_t)1 << 60) /* of an image whose end has not come */

/* Rows of a value whose image has h rows: steps * (h / period) + rest[h % period]. */
struct halotile_height {
    int64_t period, steps;
    const int64_t *rest;
};

/* Rows of input or output `tensor`: `outer` pieces of `inner` bytes each. */
struct halotile_port {
    size_t tensor, outer, inner;
    int64_t count, delay;
    struct halotile_height height;
};

/* What a step leaves for the next; at first `bytes` of repeated elements `fill`. `single`: a step has read all of the
 * input when it writes the output, so that one memory is both. */
struct halotile_state {
    size_t input, output, bytes, element;
    int single;
    const unsigned char *fill;
};

enum halotile_feed_kind { HALOTILE_MASK, HALOTILE_GATHER, HALOTILE_SHARE, HALOTILE_PART };

/* An input that is filled before every step, for rows t * count - back + (0 .. length - 1) of a value: whether they
 * exist; where they are in a window of another value; the share of a pool's window that exists; 1 / how many exist. */
struct halotile_feed {
    size_t input;
    enum halotile_feed_kind kind;
    int64_t count, back, length;
    struct halotile_height height;
    /* gather: row y is row top[y] at the top, the source's height less bottom[i] for the i-th from the end, y + shift
     * in between; the window has window_length rows from t * window_count - window_back on */
    int64_t shift, tops, bottoms;
    const int64_t *top, *bottom;
    int64_t window_count, window_length, window_back;
    struct halotile_height source;
    /* share: for 1, 2, .. rows that exist an element each */
    int64_t kernel, stride, dilation, before;
    size_t element;
    const unsigned char *shares;
};

enum halotile_statistic_kind {
    HALOTILE_MEAN,
    HALOTILE_SUM,
    HALOTILE_MAX,
    HALOTILE_MIN,
    HALOTILE_STANDARDISE,
    HALOTILE_CENTRE
};

/* What all rows are needed for: gathered in the pass `level` from outputs that have one row, and given to inputs in the
 * passes behind it. `reduced` are the axes of `shape` that it goes over. */
struct halotile_statistic {
    enum halotile_statistic_kind kind;
    int level;
    size_t outputs[2], inputs[3], rank, elements, kept;
    const size_t *shape;
    const unsigned char *reduced;
    int64_t count, delay;
    struct halotile_height height;
    double epsilon;
};

struct halotile_stream_plan {
    int64_t least, multiple;
    int passes, giving; /* how often the image is read, and the pass that gives rows */
    size_t inputs, outputs, states, feeds, statistics, kept, stills;
    const struct halotile_port *input, *output;
    const struct halotile_state *state;
    const struct halotile_feed *feed;
    const struct halotile_statistic *statistic;
    const size_t *kept_input;   /* inputs that are given once, when the stream is opened */
    const size_t *still_output; /* outputs without rows */
    const size_t *input_bytes, *output_bytes;
    const char *heights; /* which an image may have, in words */
};

extern const struct halotile_stream_plan halotile_stream_plan;

struct halotile_gathered {
    double *first, *second; /* of one row */
    double *mean, *squares; /* of the result */
    int64_t rows;
};

struct halotile_stream;

int64_t halotile_height_at(const struct halotile_height *height, int64_t rows);
void halotile_feed_fill(const struct halotile_feed *feed, void *out, int64_t step, int64_t rows);
/* Doubles that a statistic needs. */
size_t halotile_gathered_doubles(const struct halotile_statistic *about);
void halotile_gathered_place(struct halotile_gathered *gathered, const struct halotile_statistic *about, double *at);
void halotile_gathered_start(struct halotile_gathered *gathered, const struct halotile_statistic *about);
/* Takes a step of which `count` rows exist. */
void halotile_gathered_add(struct halotile_gathered *gathered, const struct halotile_statistic *about,
                           const float *first, const float *second, int64_t count);
void halotile_gathered_numbers(const struct halotile_gathered *gathered, const struct halotile_statistic *about,
                               float *const *numbers);

/* `rows` of the image, at most, are pushed before what they gave is pulled; 0 for those of a step. */
size_t halotile_stream_bytes(int threads, int64_t rows);
int halotile_stream_open(int threads, int64_t rows, const void *const *kept, const struct halotile_memory *memory,
                         struct halotile_stream **result);
int64_t halotile_stream_room(const struct halotile_stream *stream);
int halotile_stream_push(struct halotile_stream *stream, const void *const *rows, int64_t count);
int64_t halotile_stream_ready(const struct halotile_stream *stream, size_t output);
int halotile_stream_pull(struct halotile_stream *stream, size_t output, void *rows, int64_t count);
int halotile_stream_finish(struct halotile_stream *stream);
int halotile_stream_again(struct halotile_stream *stream);
int halotile_stream_still(struct halotile_stream *stream, void *const *outputs);
void halotile_stream_close(struct halotile_stream *stream);
const char *halotile_stream_text(int code);

#endif
