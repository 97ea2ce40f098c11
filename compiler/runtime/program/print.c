/* Results, in words or as JSON. */
#include <stdio.h>

#include "program.h"

void print_string(const char *text) {
    putchar('"');
    for (; *text; ++text) {
        unsigned char letter = (unsigned char)*text;
        if (letter == '"' || letter == '\\') {
            printf("\\%c", letter);
        } else if (letter < 0x20) {
            printf("\\u%04x", letter);
        } else {
            putchar(letter);
        }
    }
    putchar('"');
}

static void print_entry(const char *key, const char *text) {
    printf("\"%s\": ", key);
    print_string(text);
}

static void tensor_print(const halotile_tensor *tensor, int json, int formulas) {
    if (json) {
        fputs("{", stdout);
        print_entry("name", tensor->name);
        fputs(", ", stdout);
        print_entry("dtype", tensor->dtype);
        fputs(", \"shape\": [", stdout);
    } else {
        printf("%s: %s[", tensor->name, tensor->dtype);
    }
    print_dims(tensor, json, formulas);
    printf(json ? "], \"bytes\": %zu" : "], %zu bytes", tensor->bytes);
}

void tensors_print(const char *kind, const halotile_tensor *tensors, size_t count, int json) {
    if (json) {
        printf(", \"%ss\": [", kind);
    }
    for (size_t i = 0; i < count; ++i) {
        printf(json ? "%s" : "%s ", json ? (i ? ", " : "") : kind);
        tensor_print(&tensors[i], json, 1);
        fputs(json ? "}" : "\n", stdout);
    }
    if (json) {
        fputs("]", stdout);
    }
}

void print_model(const halotile_description *model, int threads, int json) {
    size_t arena = arena_for(threads);
    if (!json) {
        printf("%s, compiled by Halotile %s for %s\n", model->name, model->version, model->target);
        printf("weights %zu bytes, arena %zu bytes\n", model->weight_bytes, arena);
        return;
    }
    print_entry("model", model->name);
    fputs(", ", stdout);
    print_entry("version", model->version);
    fputs(", ", stdout);
    print_entry("target", model->target);
    fputs(", ", stdout);
    print_entry("fingerprint", model->fingerprint);
    printf(", \"weight_bytes\": %zu, \"arena_bytes\": %zu", model->weight_bytes, arena);
    printf(", \"default_threads\": %d, \"max_threads\": %d", model->default_threads, model->max_threads);
}

void print_timing(const struct timing *t, long warmup, int json) {
    if (!json) {
        printf("%zu runs after %ld: median %.3f ms, min %.3f, p90 %.3f, p99 %.3f, max %.3f, mean %.3f\n", t->runs,
               warmup, t->p50, t->min, t->p90, t->p99, t->max, t->mean);
        return;
    }
    printf(", \"warmup\": %ld, \"runs\": %zu, \"milliseconds\": {", warmup, t->runs);
    printf("\"min\": %.6f, \"p50\": %.6f, \"p90\": %.6f, \"p99\": %.6f, \"max\": %.6f, \"mean\": %.6f}", t->min,
           t->p50, t->p90, t->p99, t->max, t->mean);
}

/* Smallest, mean and largest element of each output; the mean as infinite as the elements make it. */
void print_outputs(const halotile_description *model, void *const *outputs, int json) {
    if (json) {
        fputs(", \"outputs\": [", stdout);
    }
    for (size_t i = 0; i < model->output_count; ++i) {
        const halotile_tensor *tensor = &model->outputs[i];
        double least = 0, most = 0, sum = 0;
        for (size_t j = 0; j < tensor->elements; ++j) {
            double value = element(tensor->dtype, outputs[i], j);
            least = j && least <= value ? least : value;
            most = j && most >= value ? most : value;
            sum += value;
        }
        fputs(json && i ? ", " : "", stdout);
        tensor_print(tensor, json, 0);
        double mean = tensor->elements ? sum / (double)tensor->elements : 0;
        if (json && sum - sum == 0) {
            printf(", \"min\": %.9g, \"mean\": %.9g, \"max\": %.9g", least, mean, most);
        } else if (!json) {
            printf(", min %.6g, mean %.6g, max %.6g", least, mean, most);
        }
        fputs(json ? "}" : "\n", stdout);
    }
    if (json) {
        fputs("]", stdout);
    }
}
