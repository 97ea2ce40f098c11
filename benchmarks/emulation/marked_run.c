/* A small C program around a model's static library: one run that warms up, and one between two calls of getppid.
 *
 * Compiled with -DHEADER="name.h" -DMODEL(what)=name_##what; reads in0.bin, in1.bin ..., writes out0.bin, out1.bin ...
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include HEADER

static int transfer(const char *kind, size_t index, void *data, size_t bytes, const char *mode) {
    char name[32];
    snprintf(name, sizeof name, "%s%lu.bin", kind, (unsigned long)index);
    FILE *file = fopen(name, mode);
    size_t done = !file ? 0 : mode[0] == 'r' ? fread(data, 1, bytes, file) : fwrite(data, 1, bytes, file);
    return file && fclose(file) == 0 && done == bytes;
}

static void *room(size_t bytes) { return aligned_alloc(64, (bytes + 127) / 64 * 64); }

int main(void) {
    const void *inputs[64];
    void *outputs[64];
    MODEL(instance) *model = NULL;
    int code = MODEL(create)(1, &model);
    for (size_t i = 0; i < MODEL(describe)()->input_count; ++i) {
        void *data = room(MODEL(describe)()->inputs[i].bytes);
        if (!data || !transfer("in", i, data, MODEL(describe)()->inputs[i].bytes, "rb")) {
            return 10;
        }
        inputs[i] = data;
    }
    for (size_t i = 0; i < MODEL(describe)()->output_count; ++i) {
        outputs[i] = room(MODEL(describe)()->outputs[i].bytes);
    }
    if (code == 0) {
        code = MODEL(run)(model, inputs, outputs);
    }
    getppid();
    if (code == 0) {
        code = MODEL(run)(model, inputs, outputs);
    }
    getppid();
    if (code != 0) {
        fprintf(stderr, "%s\n", MODEL(error_text)(code));
        return code;
    }
    for (size_t i = 0; i < MODEL(describe)()->output_count; ++i) {
        if (!transfer("out", i, outputs[i], MODEL(describe)()->outputs[i].bytes, "wb")) {
            return 11;
        }
    }
    MODEL(destroy)(model);
    return 0;
}
