/* A machine with a scratchpad of its own: transfers are copies on the spot, counted and checked.
 *
 * usage: firmware INPUT OUTPUT; prints the numbers of loads, stores and waits
 */
#include "striped.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(64) unsigned char pad[STRIPED_SCRATCHPAD_BYTES];
static int loads, stores, waits, fail_at = -1;

void *striped_scratchpad(size_t bytes) { return bytes <= sizeof pad ? pad : NULL; }

static int inside(const void *start, size_t line_bytes, size_t lines, size_t stride) {
    const unsigned char *first = start;
    return first >= pad && first + (lines - 1) * stride + line_bytes <= pad + sizeof pad;
}

int striped_load_2d(void *scratch, const void *memory, size_t line_bytes, size_t lines, size_t scratch_stride,
                    size_t memory_stride) {
    size_t i;
    if (!inside(scratch, line_bytes, lines, scratch_stride) || loads == fail_at) {
        return -1;
    }
    for (i = 0; i < lines; ++i) {
        memcpy((char *)scratch + i * scratch_stride, (const char *)memory + i * memory_stride, line_bytes);
    }
    return loads++;
}

int striped_store_2d(void *memory, const void *scratch, size_t line_bytes, size_t lines, size_t memory_stride,
                     size_t scratch_stride) {
    size_t i;
    if (!inside(scratch, line_bytes, lines, scratch_stride)) {
        return -1;
    }
    for (i = 0; i < lines; ++i) {
        memcpy((char *)memory + i * memory_stride, (const char *)scratch + i * scratch_stride, line_bytes);
    }
    return 1000 + stores++;
}

int striped_wait(int request) {
    ++waits;
    return request >= 0 ? 0 : -1;
}

int main(int argc, char **argv) {
    float *x = malloc(STRIPED_INPUT_0_BYTES), *y = malloc(STRIPED_OUTPUT_0_BYTES);
    const void *inputs[1];
    void *outputs[1];
    striped_instance *model = NULL;
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!x || !y || !file || fread(x, 1, STRIPED_INPUT_0_BYTES, file) != STRIPED_INPUT_0_BYTES || fclose(file)) {
        return 2;
    }
    inputs[0] = x;
    outputs[0] = y;
    if (striped_create(1, &model) != STRIPED_OK || striped_run(model, inputs, outputs) != STRIPED_OK) {
        return 1;
    }
    file = fopen(argv[2], "wb");
    if (!file || fwrite(y, 1, STRIPED_OUTPUT_0_BYTES, file) != STRIPED_OUTPUT_0_BYTES || fclose(file)) {
        return 2;
    }
    printf("%d %d %d\n", loads, stores, waits);
    fail_at = loads + 1; /* the second load of the next run fails, and so does that run, and no other */
    if (striped_run(model, inputs, outputs) != STRIPED_ERROR_TRANSFER) {
        return 3;
    }
    fail_at = -1;
    if (striped_run(model, inputs, outputs) != STRIPED_OK) {
        return 4;
    }
    striped_destroy(model);
    free(x);
    free(y);
    return 0;
}
