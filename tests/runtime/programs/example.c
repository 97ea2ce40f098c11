/* A whole program against a model's library: describe, create, run, destroy. */
#include <stdio.h>
#include "rounds.h"

static float x[ROUNDS_INPUT_0_ELEMENTS];
static float y[ROUNDS_OUTPUT_0_ELEMENTS];

int main(void) {
    const rounds_description *model = rounds_describe();
    const rounds_tensor *input = &model->inputs[0];
    const void *inputs[ROUNDS_INPUTS];
    void *outputs[ROUNDS_OUTPUTS];
    rounds_instance *instance;
    int code, i;

    printf("%s %d %lu %lu %lu %lu %lu\n", model->name, ROUNDS_OK, (unsigned long)model->input_count,
           (unsigned long)model->output_count, (unsigned long)model->weight_bytes, (unsigned long)model->planned_bytes,
           (unsigned long)model->workspace_bytes);
    printf("%s %s %lu %lu %lu %lu %lu\n", input->name, input->dtype, (unsigned long)input->rank,
           (unsigned long)input->shape[0], (unsigned long)input->shape[1], (unsigned long)input->elements,
           (unsigned long)input->bytes);
    for (i = 0; i < (int)ROUNDS_INPUT_0_ELEMENTS; ++i) {
        x[i] = (float)(i % 7);
    }
    inputs[0] = x;
    outputs[0] = y;
    code = rounds_create(2, &instance);
    if (code == ROUNDS_OK) {
        code = rounds_run(instance, inputs, outputs);
    }
    if (code != ROUNDS_OK) {
        fprintf(stderr, "%s\n", rounds_error_text(code));
        return 1;
    }
    for (i = 0; i < 5; ++i) {
        printf("%g ", y[i]);
    }
    rounds_destroy(instance);
    return 0;
}
