/* Every shape that the library refuses, and what it says; facts of those that it takes. */
#include <stdio.h>
#include "open_net.h"

static open_net_shape at(int64_t batch, int64_t width) {
    open_net_shape shape;
    shape.batch = batch;
    shape.width = width;
    return shape;
}

static void say(const char *what, int code) { printf("%s: %s\n", what, open_net_error_text(code)); }

static void check(int64_t batch, int64_t width) {
    open_net_shape shape = at(batch, width);
    int code = open_net_shape_check(&shape);
    printf("%d: %s\n", code, open_net_error_text(code));
}

static void describe(void) {
    const open_net_description *d = open_net_describe();
    size_t i, j;
    for (i = 0; i < d->symbol_count; ++i) {
        printf("%s %ld %s|%s\n", d->symbols[i].name, (long)d->symbols[i].typical, d->symbols[i].allowed,
               d->symbols[i].why);
    }
    for (i = 0; i < d->input_count; ++i) {
        printf("%s %s %lu", d->inputs[i].name, d->inputs[i].dtype, (unsigned long)d->inputs[i].element_bytes);
        for (j = 0; j < d->inputs[i].rank; ++j) {
            printf(" %s", d->inputs[i].dims[j]);
        }
        printf("\n");
    }
}

int main(void) {
    static float x[2 * 2 * 3], m[2], y[2 * 5];
    const void *inputs[OPEN_NET_INPUTS];
    void *outputs[OPEN_NET_OUTPUTS];
    int64_t dims[OPEN_NET_SHAPE_DIMS], own[OPEN_NET_OUTPUT_0_RANK];
    open_net_shape small = at(2, 2), large = at(64, 2000), wrong = at(0, 2);
    open_net_instance *instance;
    inputs[0] = x;
    inputs[1] = m;
    outputs[0] = y;
    describe();
    check(0, 2);
    check(-1, 2);
    check(65, 2);
    check(2, 3);
    check(2, -2);
    check(64, 2147483646);
    check(64, 2147483648);
    check(1, 0);
    say("no shape", open_net_shape_check(NULL));
    say("no place for dimensions", open_net_shape_dims(&small, NULL));
    if (open_net_arena_bytes_for(&wrong, 1) || open_net_output_0_bytes_for(&wrong) ||
        open_net_arena_bytes_for(&small, 65) || open_net_arena_bytes_for(NULL, 1)) {
        return 1;
    }
    if (open_net_shape_dims(&large, dims) || open_net_output_0_shape(&large, own) || dims[0] != 64 ||
        dims[1] != 2000 || dims[2] != 3 || dims[3] != 2000 || dims[4] != 64 || dims[5] != 4001 || own[1] != 4001 ||
        open_net_output_0_bytes_for(&large) != 64 * 4001 * 4) {
        return 2;
    }
    say("create for a refused shape", open_net_create_for(1, &wrong, &instance));
    if (instance) {
        return 3;
    }
    say("create for no shape", open_net_create_for(1, NULL, &instance));
    say("create without a result", open_net_create_for(1, &small, NULL));
    say("create with 65 threads", open_net_create_for(65, &small, &instance));
    if (open_net_create_for(1, &small, &instance)) {
        return 4;
    }
    say("run at a larger shape", open_net_run_shape(instance, &large, inputs, outputs));
    say("run at a refused shape", open_net_run_shape(instance, &wrong, inputs, outputs));
    say("run at no shape", open_net_run_shape(instance, NULL, inputs, outputs));
    say("run without an instance", open_net_run_shape(NULL, &small, inputs, outputs));
    say("run without inputs", open_net_run_shape(instance, &small, NULL, outputs));
    say("fine", open_net_run_shape(instance, &small, inputs, outputs));
    open_net_destroy(instance);
    return 0;
}
