/* A model whose shapes are fixed: there is nothing to choose. */
#include "program.h"

const char usage_of_sizes[] = "";

const halotile_description *the_model(void) { return MODEL(describe)(); }

int takes_size(const char *word) {
    (void)word;
    return 0;
}

void take_size(const char *text) { (void)text; }

void settle_sizes(const struct options *options) { (void)options; }

size_t arena_for(int threads) { return MODEL(arena_bytes)(threads); }

int start_model(int threads, halotile_instance **instance) { return MODEL(create)(threads, instance); }

int run_model(halotile_instance *instance, const void *const *inputs, void *const *outputs) {
    return MODEL(run)(instance, inputs, outputs);
}

void print_sizes(int json) { (void)json; }

void print_dims(const halotile_tensor *tensor, int json, int formulas) {
    (void)json, (void)formulas;
    for (size_t i = 0; i < tensor->rank; ++i) {
        printf("%s%zu", i ? ", " : "", tensor->shape[i]);
    }
}
