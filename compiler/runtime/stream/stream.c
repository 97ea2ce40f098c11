/* The machine behind a stream's C functions: what is pushed fills a step, steps run as soon as there is room for what
 * they give, and what they gave is pulled. */
#define _GNU_SOURCE
#include <string.h>

#include "arena.h"
#include "machine.h"
#include "state.h"

/* The start of a pass. */
static void begin(struct halotile_stream *stream) {
    stream->step = stream->given = 0;
    stream->height = HALOTILE_NO_HEIGHT;
    memset(stream->pulled, 0, PLAN->outputs * sizeof(int64_t));
    for (size_t i = 0; i < PLAN->states; ++i) {
        const struct halotile_state *state = &PLAN->state[i];
        unsigned char *place = stream->inputs[0][state->input];
        for (size_t at = 0; at < state->bytes; at += state->element) {
            memcpy(place + at, state->fill, state->element);
        }
    }
    for (size_t i = 0; i < PLAN->statistics; ++i) {
        halotile_gathered_start(&stream->gathered[i], &PLAN->statistic[i]);
    }
}

size_t halotile_stream_bytes(int threads, int64_t rows) {
    if (rows < 0 || !halotile_decide_threads(threads)) {
        return 0;
    }
    return halotile_lay_out(NULL, halotile_slots_for(rows)) + halotile_aligned_bytes(halotile_arena_bytes(threads));
}

int halotile_stream_open(int threads, int64_t rows, const void *const *kept, const struct halotile_memory *memory,
                         struct halotile_stream **result) {
    *result = NULL;
    if (rows < 0 || (PLAN->kept && !kept)) {
        return HALOTILE_ERROR_ARGUMENT;
    }
    for (size_t i = 0; i < PLAN->kept; ++i) {
        if (!kept[i]) {
            return HALOTILE_ERROR_ARGUMENT;
        }
    }
    size_t own = halotile_lay_out(NULL, halotile_slots_for(rows)), arena = halotile_aligned_bytes(halotile_arena_bytes(threads));
    int is_aligned = !memory || (uintptr_t)memory->start % HALOTILE_ALIGNMENT == 0;
    if (memory && (!memory->start || memory->bytes < own + arena || !is_aligned)) {
        return HALOTILE_ERROR_ARENA;
    }
    unsigned char *block = memory ? memory->start : halotile_aligned(HALOTILE_ALIGNMENT, own);
    if (!block) {
        return HALOTILE_ERROR_MEMORY;
    }
    halotile_lay_out(block, halotile_slots_for(rows));
    struct halotile_stream *stream = (struct halotile_stream *)block;
    struct halotile_memory rest = {block + own, arena};
    stream->owned = !memory;
    int code = halotile_create(threads, memory ? &rest : NULL, &stream->instance);
    if (code != HALOTILE_OK) {
        halotile_stream_close(stream);
        return code;
    }
    for (size_t i = 0; i < PLAN->kept; ++i) {
        size_t input = PLAN->kept_input[i];
        memcpy(stream->inputs[0][input], kept[i], PLAN->input_bytes[input]);
    }
    begin(stream);
    *result = stream;
    return HALOTILE_OK;
}

void halotile_stream_close(struct halotile_stream *stream) {
    if (!stream) {
        return;
    }
    halotile_destroy(stream->instance);
    if (stream->owned) {
        halotile_aligned_free(stream);
    }
}

static int is_giving(const struct halotile_stream *stream) { return stream->level == PLAN->giving; }

static int is_finished(const struct halotile_stream *stream) { return stream->height != HALOTILE_NO_HEIGHT; }

static int64_t made(const struct halotile_stream *stream, const struct halotile_port *port) {
    int64_t rows = stream->step * port->count - port->delay, height = halotile_height_at(&port->height, stream->height);
    rows = rows < height ? rows : height;
    return is_giving(stream) && rows > 0 ? rows : 0;
}

int64_t halotile_stream_ready(const struct halotile_stream *stream, size_t output) {
    if (!stream || output >= PLAN->outputs) {
        return 0;
    }
    return made(stream, &PLAN->output[output]) - stream->pulled[output];
}

/* Steps that can run before rows are pulled. */
static int64_t free_slots(const struct halotile_stream *stream) {
    int64_t oldest = stream->step;
    for (size_t i = 0; i < PLAN->outputs; ++i) {
        const struct halotile_port *port = &PLAN->output[i];
        if (halotile_stream_ready(stream, i) > 0) {
            int64_t step = (stream->pulled[i] + port->delay) / port->count;
            oldest = step < oldest ? step : oldest;
        }
    }
    return stream->slots - (stream->step - oldest);
}

static int64_t filled(const struct halotile_stream *stream) {
    return stream->given - stream->step * PLAN->input[0].count;
}

static int64_t rows_in_step(const struct halotile_stream *stream, const struct halotile_statistic *about) {
    int64_t first = stream->step * about->count - about->delay, end = first + about->count;
    int64_t height = halotile_height_at(&about->height, stream->height);
    end = end < height ? end : height;
    first = first > 0 ? first : 0;
    return end > first ? end - first : 0;
}

static int advance(struct halotile_stream *stream) {
    int side = (int)(stream->step % 2);
    for (size_t i = 0; i < PLAN->feeds; ++i) {
        halotile_feed_fill(&PLAN->feed[i], stream->inputs[0][PLAN->feed[i].input], stream->step, stream->height);
    }
    for (size_t i = 0; i < PLAN->outputs; ++i) {
        int64_t slot = (int64_t)i * stream->slots + stream->step % stream->slots;
        stream->outputs[side][PLAN->output[i].tensor] = stream->wait[slot];
    }
    int code = halotile_run(stream->instance, (const void *const *)stream->inputs[side], stream->outputs[side]);
    if (code != HALOTILE_OK) {
        return stream->failed = code;
    }
    for (size_t i = 0; i < PLAN->statistics; ++i) {
        const struct halotile_statistic *about = &PLAN->statistic[i];
        if (about->level == stream->level) {
            const float *second = about->outputs[1] != (size_t)-1 ? stream->outputs[0][about->outputs[1]] : NULL;
            halotile_gathered_add(&stream->gathered[i], about, stream->outputs[0][about->outputs[0]], second,
                                  rows_in_step(stream, about));
        }
    }
    ++stream->step;
    return HALOTILE_OK;
}

/* Runs the steps that can. */
static int settle(struct halotile_stream *stream) {
    while (is_finished(stream) ? stream->step < stream->steps : filled(stream) == PLAN->input[0].count) {
        if (free_slots(stream) < 1) {
            break;
        }
        int code = advance(stream);
        if (code != HALOTILE_OK) {
            return code;
        }
    }
    return HALOTILE_OK;
}

int64_t halotile_stream_room(const struct halotile_stream *stream) {
    if (!stream || is_finished(stream) || stream->failed) {
        return 0;
    }
    if (!is_giving(stream) || !PLAN->outputs) {
        return HALOTILE_NO_HEIGHT;
    }
    int64_t count = PLAN->input[0].count;
    return free_slots(stream) * count + count - filled(stream);
}

/* Rows [from, end) of the first input, and what of the others is the same part of the image, to their places. */
static void take(struct halotile_stream *stream, const void *const *rows, int64_t total, int64_t from, int64_t end) {
    int64_t first = PLAN->input[0].count, place = filled(stream);
    for (size_t i = 0; i < PLAN->inputs; ++i) {
        const struct halotile_port *port = &PLAN->input[i];
        int64_t a = from * port->count / first, b = end * port->count / first;
        int64_t all = total * port->count / first, at = place * port->count / first;
        unsigned char *to = stream->inputs[0][port->tensor];
        const unsigned char *source = rows[i];
        for (size_t o = 0; o < port->outer && b > a; ++o) {
            memcpy(to + ((int64_t)o * port->count + at) * (int64_t)port->inner,
                   source + ((int64_t)o * all + a) * (int64_t)port->inner, (size_t)(b - a) * port->inner);
        }
    }
    stream->given += end - from;
}

int halotile_stream_push(struct halotile_stream *stream, const void *const *rows, int64_t count) {
    if (!stream || !rows) {
        return HALOTILE_ERROR_ARGUMENT;
    }
    if (stream->failed) {
        return stream->failed;
    }
    if (is_finished(stream)) {
        return HALOTILE_ERROR_FINISHED;
    }
    if (count < 0 || count > halotile_stream_room(stream)) {
        return HALOTILE_ERROR_ROWS;
    }
    int64_t whole = PLAN->input[0].count;
    for (size_t i = 0; i < PLAN->inputs; ++i) {
        if (!rows[i] && count) {
            return HALOTILE_ERROR_ARGUMENT;
        }
        if (count * PLAN->input[i].count % whole) {
            return HALOTILE_ERROR_ROWS;
        }
    }
    for (int64_t done = 0; done < count;) {
        int64_t part = whole - filled(stream);
        part = part < count - done ? part : count - done;
        take(stream, rows, count, done, done + part);
        done += part;
        int code = settle(stream);
        if (code != HALOTILE_OK) {
            return code;
        }
    }
    return HALOTILE_OK;
}

int halotile_stream_pull(struct halotile_stream *stream, size_t output, void *rows, int64_t count) {
    if (!stream || output >= PLAN->outputs || (!rows && count)) {
        return HALOTILE_ERROR_ARGUMENT;
    }
    if (count < 0 || count > halotile_stream_ready(stream, output)) {
        return HALOTILE_ERROR_ROWS;
    }
    const struct halotile_port *port = &PLAN->output[output];
    for (int64_t done = 0; done < count;) {
        int64_t row = stream->pulled[output] + port->delay, place = row % port->count, part = port->count - place;
        const unsigned char *from = stream->wait[(int64_t)output * stream->slots + row / port->count % stream->slots];
        part = part < count - done ? part : count - done;
        for (size_t o = 0; o < port->outer; ++o) {
            memcpy((unsigned char *)rows + ((int64_t)o * count + done) * (int64_t)port->inner,
                   from + ((int64_t)o * port->count + place) * (int64_t)port->inner, (size_t)part * port->inner);
        }
        done += part;
        stream->pulled[output] += part;
    }
    return stream->failed ? stream->failed : settle(stream);
}

static int64_t steps_of(int64_t rows, int64_t delay, int64_t count) { return (rows + delay + count - 1) / count; }

int halotile_stream_finish(struct halotile_stream *stream) {
    if (!stream) {
        return HALOTILE_ERROR_ARGUMENT;
    }
    if (stream->failed || is_finished(stream)) {
        return stream->failed;
    }
    const struct halotile_height *given = &PLAN->input[0].height;
    int64_t height = stream->given * given->period / given->steps;
    while (halotile_height_at(given, height) < stream->given) {
        ++height;
    }
    int whole = halotile_height_at(given, height) == stream->given;
    if (!whole || height < PLAN->least || height % PLAN->multiple) {
        return HALOTILE_ERROR_HEIGHT;
    }
    stream->steps = 1;
    for (size_t i = 0; i < PLAN->outputs; ++i) {
        const struct halotile_port *port = &PLAN->output[i];
        int64_t steps = steps_of(halotile_height_at(&port->height, height), port->delay, port->count);
        stream->steps = steps > stream->steps ? steps : stream->steps;
    }
    for (size_t i = 0; i < PLAN->statistics; ++i) {
        const struct halotile_statistic *about = &PLAN->statistic[i];
        int64_t steps = steps_of(halotile_height_at(&about->height, height), about->delay, about->count);
        stream->steps = steps > stream->steps ? steps : stream->steps;
    }
    stream->height = height;
    return settle(stream);
}

/* Whether the pass is over, and its rows are taken. */
static int is_over(const struct halotile_stream *stream) {
    int over = is_finished(stream) && stream->step >= stream->steps;
    for (size_t i = 0; i < PLAN->outputs; ++i) {
        over &= !halotile_stream_ready(stream, i);
    }
    return over;
}

static void use_gathered(struct halotile_stream *stream) {
    for (size_t i = 0; i < PLAN->statistics; ++i) {
        const struct halotile_statistic *about = &PLAN->statistic[i];
        float *numbers[3] = {0};
        for (size_t j = 0; j < 3; ++j) {
            numbers[j] = about->inputs[j] != (size_t)-1 ? stream->inputs[0][about->inputs[j]] : NULL;
        }
        if (about->level == stream->level) {
            halotile_gathered_numbers(&stream->gathered[i], about, numbers);
        }
    }
}

int halotile_stream_again(struct halotile_stream *stream) {
    if (!stream) {
        return HALOTILE_ERROR_ARGUMENT;
    }
    if (stream->failed || !is_over(stream) || stream->level + 1 >= PLAN->passes) {
        return stream->failed ? stream->failed : HALOTILE_ERROR_PASS;
    }
    use_gathered(stream);
    ++stream->level;
    begin(stream);
    return HALOTILE_OK;
}

int halotile_stream_still(struct halotile_stream *stream, void *const *outputs) {
    if (!stream || (PLAN->stills && !outputs)) {
        return HALOTILE_ERROR_ARGUMENT;
    }
    if (stream->failed || !is_over(stream) || stream->level + 1 != PLAN->passes) {
        return stream->failed ? stream->failed : HALOTILE_ERROR_PASS;
    }
    if (stream->step == stream->steps) { /* the first time: one step more, on what was gathered last */
        use_gathered(stream);
        int side = (int)(stream->step % 2);
        int code = halotile_run(stream->instance, (const void *const *)stream->inputs[side], stream->outputs[side]);
        if (code != HALOTILE_OK) {
            return stream->failed = code;
        }
        ++stream->steps, ++stream->step;
    }
    for (size_t i = 0; i < PLAN->stills; ++i) {
        size_t output = PLAN->still_output[i];
        memcpy(outputs[i], stream->outputs[0][output], PLAN->output_bytes[output]);
    }
    return HALOTILE_OK;
}

const char *halotile_stream_text(int code) {
    switch (code) {
    case HALOTILE_ERROR_FINISHED: return "the stream is finished: no rows can follow";
    case HALOTILE_ERROR_ROWS:
        return "more rows than there is room for or than are ready, or rows of several inputs that are not as much of "
               "the image";
    case HALOTILE_ERROR_HEIGHT: return PLAN->heights;
    case HALOTILE_ERROR_PASS:
        return "the pass is not over (finish it, and pull its rows), or it is not one that this can follow";
    default: return halotile_error_text(code);
    }
}
