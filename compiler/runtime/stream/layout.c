/* Where everything of a stream lies in its one block of memory. */
#include <string.h>

#include "machine.h"

/* Takes pieces from a block of memory, or with none counts their bytes. */
struct carver {
    unsigned char *start;
    size_t used;
};

static void *carve(struct carver *carver, size_t bytes) {
    void *place = carver->start ? carver->start + carver->used : NULL;
    carver->used += halotile_aligned_bytes(bytes);
    return place;
}

int64_t halotile_slots_for(int64_t rows) {
    int64_t count = PLAN->inputs ? PLAN->input[0].count : 1;
    return rows > count ? (rows + count - 1) / count : 1;
}

static void carve_states(struct carver *carver, struct halotile_stream *stream) {
    for (size_t i = 0; i < PLAN->states; ++i) {
        const struct halotile_state *state = &PLAN->state[i];
        void *one = carve(carver, state->bytes), *other = state->single ? one : carve(carver, state->bytes);
        if (stream) {
            stream->inputs[0][state->input] = stream->outputs[1][state->output] = one;
            stream->inputs[1][state->input] = stream->outputs[0][state->output] = other;
        }
    }
}

static void carve_inputs(struct carver *carver, struct halotile_stream *stream) {
    for (size_t i = 0; i < halotile_model.input_count; ++i) {
        if (stream && stream->inputs[0][i]) {
            continue;
        }
        int state = 0;
        for (size_t s = 0; !stream && s < PLAN->states; ++s) {
            state |= PLAN->state[s].input == i;
        }
        void *place = state ? NULL : carve(carver, PLAN->input_bytes[i]);
        if (stream) {
            stream->inputs[0][i] = stream->inputs[1][i] = place;
        }
    }
}

static void carve_outputs(struct carver *carver, struct halotile_stream *stream, int64_t slots) {
    for (size_t p = 0; p < PLAN->outputs; ++p) {
        size_t tensor = PLAN->output[p].tensor;
        for (int64_t s = 0; s < slots; ++s) {
            void *place = carve(carver, PLAN->output_bytes[tensor]);
            if (stream) {
                stream->wait[(int64_t)p * slots + s] = place;
                stream->outputs[0][tensor] = stream->outputs[1][tensor] = place;
            }
        }
    }
    for (size_t i = 0; i < halotile_model.output_count; ++i) {
        int known = 0;
        for (size_t s = 0; s < PLAN->states; ++s) {
            known |= PLAN->state[s].output == i;
        }
        for (size_t p = 0; p < PLAN->outputs; ++p) {
            known |= PLAN->output[p].tensor == i;
        }
        void *place = known ? NULL : carve(carver, PLAN->output_bytes[i]);
        if (stream && !known) {
            stream->outputs[0][i] = stream->outputs[1][i] = place;
        }
    }
}

size_t halotile_lay_out(unsigned char *start, int64_t slots) {
    struct carver carver = {start, 0};
    struct halotile_stream *stream = carve(&carver, sizeof *stream);
    size_t inputs = halotile_model.input_count * sizeof(void *), outputs = halotile_model.output_count * sizeof(void *);
    void *places[4];
    for (int i = 0; i < 4; ++i) {
        places[i] = carve(&carver, i < 2 ? inputs : outputs);
    }
    void *pulled = carve(&carver, PLAN->outputs * sizeof(int64_t));
    void *wait = carve(&carver, PLAN->outputs * (size_t)slots * sizeof(void *));
    void *gathered = carve(&carver, PLAN->statistics * sizeof(struct halotile_gathered));
    if (stream) {
        memset(start, 0, carver.used);
        stream->slots = slots;
        stream->pulled = pulled, stream->wait = wait, stream->gathered = gathered;
        stream->inputs[0] = places[0], stream->inputs[1] = places[1];
        stream->outputs[0] = places[2], stream->outputs[1] = places[3];
    }
    size_t bookkeeping = carver.used;
    for (size_t i = 0; i < PLAN->statistics; ++i) {
        double *place = carve(&carver, halotile_gathered_doubles(&PLAN->statistic[i]) * sizeof(double));
        if (stream) {
            halotile_gathered_place(&stream->gathered[i], &PLAN->statistic[i], place);
        }
    }
    carve_states(&carver, stream);
    carve_inputs(&carver, stream);
    carve_outputs(&carver, stream, slots);
    if (stream) {
        memset(start + bookkeeping, 0, carver.used - bookkeeping);
    }
    return carver.used;
}
