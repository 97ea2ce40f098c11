/* A small C program around a model's shared library: reads in0.bin, in1.bin ... and writes out0.bin, out1.bin ...
 *
 * Compiled with -DHEADER="name.h" -DMODEL(what)=name_##what; the first argument is the number of threads.
 */
#include <stdio.h>
#include <stdlib.h>

#include HEADER

static int transfer(const char *kind, size_t index, void *data, size_t bytes, const char *mode) {
    char name[32];
    sprintf(name, "%s%lu.bin", kind, (unsigned long)index);
    FILE *file = fopen(name, mode);
    size_t done = !file ? 0 : mode[0] == 'r' ? fread(data, 1, bytes, file) : fwrite(data, 1, bytes, file);
    return file && fclose(file) == 0 && done == bytes;
}

int main(int count, char **words) {
    const void *inputs[64];
    void *outputs[64];
    size_t i;
    int code;
    for (i = 0; i < MODEL(describe)()->input_count; ++i) {
        size_t bytes = MODEL(describe)()->inputs[i].bytes;
        void *data = malloc(bytes + 1);
        if (!data || !transfer("in", i, data, bytes, "rb")) {
            return 10;
        }
        inputs[i] = data;
    }
    for (i = 0; i < MODEL(describe)()->output_count; ++i) {
        outputs[i] = malloc(MODEL(describe)()->outputs[i].bytes + 1);
    }
    MODEL(instance) *model = NULL;
    code = MODEL(create)(count > 1 ? atoi(words[1]) : 0, &model);
    if (code == 0) {
        code = MODEL(run)(model, inputs, outputs);
    }
    if (code != 0) {
        fprintf(stderr, "%s\n", MODEL(error_text)(code));
        return code;
    }
    for (i = 0; i < MODEL(describe)()->output_count; ++i) {
        if (!transfer("out", i, outputs[i], MODEL(describe)()->outputs[i].bytes, "wb")) {
            return 11;
        }
    }
    MODEL(destroy)(model);
    return 0;
}
