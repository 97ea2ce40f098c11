/* model_run: describes the model, runs it on files or random numbers, checks and measures it. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "program.h"

void fail(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fputs("model_run: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(code);
}

void *allocate(size_t bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes ? bytes : 1) != 0) {
        fail(EXIT_ERROR, "not enough memory for %zu bytes", bytes);
    }
    memset(memory, 0, bytes);
    return memory;
}

double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest time that at least `part` of all runs kept to. */
static double percentile(const double *sorted, size_t runs, double part) {
    size_t rank = (size_t)(part * (double)runs);
    rank += (double)rank < part * (double)runs;
    return sorted[rank ? rank - 1 : 0];
}

struct timing summarise(double *times, size_t runs) {
    struct timing result = {.runs = runs};
    qsort(times, runs, sizeof *times, by_size);
    for (size_t i = 0; i < runs; ++i) {
        result.mean += times[i] / (double)runs;
    }
    result.min = times[0];
    result.max = times[runs - 1];
    result.p50 = percentile(times, runs, 0.50);
    result.p90 = percentile(times, runs, 0.90);
    result.p99 = percentile(times, runs, 0.99);
    return result;
}

static void **load_inputs(const halotile_description *model, const struct options *options) {
    void **inputs = allocate((model->input_count + 1) * sizeof *inputs);
    for (size_t i = 0; i < model->input_count; ++i) {
        const halotile_tensor *tensor = &model->inputs[i];
        const char *file = options->inputs[i];
        inputs[i] = allocate(tensor->bytes);
        if (!file || !strcmp(file, "random")) {
            fill_random(tensor, inputs[i], (uint64_t)options->seed * 1000003 + i);
        } else {
            tensor_read(file, tensor, inputs[i]);
        }
    }
    return inputs;
}

static void run_once(halotile_instance *instance, void **inputs, void **outputs) {
    int code = run_model(instance, (const void *const *)inputs, outputs);
    if (code != 0) {
        fail(EXIT_ERROR, "the run failed: %s", MODEL(error_text)(code));
    }
}

static struct timing measure(halotile_instance *instance, void **inputs, void **outputs, long warmup, long runs) {
    double *times = allocate((size_t)runs * sizeof *times);
    for (long i = 0; i < warmup; ++i) {
        run_once(instance, inputs, outputs);
    }
    for (long i = 0; i < runs; ++i) {
        double start = now_ms();
        run_once(instance, inputs, outputs);
        times[i] = now_ms() - start;
    }
    struct timing result = summarise(times, (size_t)runs);
    free(times);
    return result;
}

static void print_number(const char *key, double value) {
    if (value - value == 0) {
        printf(", \"%s\": %.9g", key, value);
    } else {
        printf(", \"%s\": null", key); /* JSON has no infinity */
    }
}

/* Compares what was expected, and returns the number of outputs that differ. */
static int check_outputs(const halotile_description *model, const struct options *options, void **outputs) {
    int differ = 0, told = 0;
    if (options->json) {
        fputs(", \"expected\": [", stdout);
    }
    for (size_t i = 0; i < model->output_count; ++i) {
        const halotile_tensor *tensor = &model->outputs[i];
        if (!options->expected[i]) {
            continue;
        }
        void *reference = allocate(tensor->bytes);
        tensor_read(options->expected[i], tensor, reference);
        struct comparison c = compare_tensors(tensor, outputs[i], reference, options->rtol, options->atol);
        differ += c.wrong != 0;
        if (options->json) {
            printf("%s{\"name\": ", told++ ? ", " : "");
            print_string(tensor->name);
            printf(", \"ok\": %s", c.wrong ? "false" : "true");
            print_number("max_error", c.error);
            print_number("limit", c.limit);
            printf(", \"mismatches\": %zu}", c.wrong);
        } else if (c.wrong) {
            printf("%s DIFFERS: %zu of %zu elements, largest error %.3g at element %zu (%.9g instead of %.9g), "
                   "allowed %.3g\n", tensor->name, c.wrong, tensor->elements, c.error, c.worst,
                   element(tensor->dtype, outputs[i], c.worst), element(tensor->dtype, reference, c.worst), c.limit);
        } else {
            printf("%s agrees: largest error %.3g, allowed %.3g\n", tensor->name, c.error, c.limit);
        }
        free(reference);
    }
    if (options->json) {
        fputs("]", stdout);
    }
    return differ;
}

static void describe(const halotile_description *model, const struct options *options) {
    fputs(options->json ? "{" : "", stdout);
    print_model(model, options->threads, options->json);
    print_sizes(options->json);
    print_stream(options->threads, options->json);
    tensors_print("input", model->inputs, model->input_count, options->json);
    tensors_print("output", model->outputs, model->output_count, options->json);
    fputs(options->json ? "}\n" : "", stdout);
}

int main(int count, char **words) {
    struct options options;
    const halotile_description *model = the_model();
    halotile_instance *instance = NULL;
    for (int i = 1; i < count; ++i) {
        if (!strcmp(words[i], "--stream")) {
            return run_stream(count, words);
        }
    }
    read_options(count, words, &options);
    if (options.affinity) {
        set_affinity(options.affinity);
    }
    settle_sizes(&options);
    if (options.describe) {
        describe(model, &options);
        return EXIT_FINE;
    }
    void **inputs = load_inputs(model, &options);
    void **outputs = allocate((model->output_count + 1) * sizeof *outputs);
    for (size_t i = 0; i < model->output_count; ++i) {
        outputs[i] = allocate(model->outputs[i].bytes);
    }
    int code = start_model(options.threads, &instance);
    if (code != 0) {
        fail(EXIT_ERROR, "can't start %s, which was built for %s and needs an arena of %zu bytes: %s", model->name,
             model->target, arena_for(options.threads), MODEL(error_text)(code));
    }
    int threads = MODEL(threads)(instance);
    long warmup = options.bench ? options.warmup : 0;
    struct timing timing = measure(instance, inputs, outputs, warmup, options.bench ? options.runs : 1);

    if (options.json) {
        struct rusage usage = {0};
        getrusage(RUSAGE_SELF, &usage);
        fputs("{", stdout);
        print_model(model, threads, 1);
        print_sizes(1);
        printf(", \"threads\": %d, \"peak_bytes\": %lld", threads, (long long)usage.ru_maxrss * 1024);
        print_timing(&timing, warmup, 1);
        print_outputs(model, outputs, 1);
    } else if (options.bench) {
        printf("%s on %d threads: ", model->name, threads);
        print_timing(&timing, warmup, 0);
    } else {
        print_outputs(model, outputs, 0);
    }
    for (size_t i = 0; i < model->output_count; ++i) {
        if (options.outputs[i]) {
            tensor_write(options.outputs[i], &model->outputs[i], outputs[i]);
        }
    }
    int differ = check_outputs(model, &options, outputs);
    fputs(options.json ? "}\n" : "", stdout);
    MODEL(destroy)(instance);
    if (fflush(stdout) != 0) {
        fail(EXIT_ERROR, "can't write to the standard output");
    }
    return differ ? EXIT_DIFFERS : EXIT_FINE;
}
