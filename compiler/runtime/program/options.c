/* The command line. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

static const char usage[] =
    "usage: model_run [options]\n"
    "  --describe              what the model takes and gives\n"
    "  -i [NAME=]FILE          an input from a .npy file, or from raw bytes (.bin); NAME=random is the default\n"
    "  -o [NAME=]FILE          write an output as .npy, or as raw bytes under any other ending\n"
    "  --expect [NAME=]FILE    compare an output with a file; exit code 3 when it differs\n"
    "  --rtol R, --atol A      allowed: R * max|expected| + A  (" MODEL_RTOL ", 1e-5)\n"
    "  --seed N                of random inputs (0)\n"
    "  --threads N             threads (the model's default)\n"
    "  --affinity LIST         run on these processors only, such as 4-7 or 0,2\n"
    "  --bench                 measure: --warmup N (5) and --runs N (50)\n"
    "  --json                  results as JSON\n";

const char *value_of(int count, char **words, int *at) {
    if (*at + 1 >= count) {
        fail(EXIT_USAGE, "%s needs a value; --help lists the options", words[*at]);
    }
    return words[++*at];
}

long whole_number(const char *option, const char *text, long least, long most) {
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (*end || end == text || errno || number < least || number > most) {
        fail(EXIT_USAGE, "%s %s: give a whole number from %ld to %ld", option, text, least, most);
    }
    return number;
}

static double tolerance(const char *option, const char *text) {
    char *end;
    double number = strtod(text, &end);
    if (*end || end == text || !(number >= 0)) {
        fail(EXIT_USAGE, "%s %s: give a number that is not negative", option, text);
    }
    return number;
}

/* Whether "name=file" gives an input of the ONNX model that no output depends on: it may be there, and is not read. */
static int is_unused(const char *text) {
    static const char *const unused[] = MODEL_UNUSED;
    for (size_t i = 0; unused[i]; ++i) {
        size_t length = strlen(unused[i]);
        if (strncmp(text, unused[i], length) == 0 && text[length] == '=') {
            return 1;
        }
    }
    return 0;
}

/* "name=file" or, where there is one tensor only, "file". Names may hold equals signs, so the longest known one that
   fits is meant. */
void bind_file(const char *kind, const char *text, const halotile_tensor *tensors, size_t count,
               const char **files) {
    size_t found = count, longest = 0;
    for (size_t i = 0; i < count; ++i) {
        size_t length = strlen(tensors[i].name);
        if (strncmp(text, tensors[i].name, length) == 0 && text[length] == '=' && (found == count || length > longest)) {
            found = i;
            longest = length;
        }
    }
    if (found < count) {
        files[found] = text + longest + 1;
        return;
    }
    const char *equals = strchr(text, '=');
    if (equals && !strcmp(kind, "input") && is_unused(text)) {
        return;
    }
    if (equals) {
        fail(EXIT_ERROR, "the model has no %s '%.*s'; --describe lists them", kind, (int)(equals - text), text);
    }
    if (count != 1) {
        fail(EXIT_ERROR, "the model has %zu %ss: write NAME=%s; --describe lists them", count, kind, text);
    }
    files[0] = text;
}

void read_options(int count, char **words, struct options *options) {
    const halotile_description *model = the_model();
    *options = (struct options){.warmup = 5, .runs = 50, .rtol = strtod(MODEL_RTOL, NULL), .atol = 1e-5};
    options->inputs = allocate((model->input_count + 1) * sizeof *options->inputs);
    options->outputs = allocate((model->output_count + 1) * sizeof *options->outputs);
    options->expected = allocate((model->output_count + 1) * sizeof *options->expected);
    for (int i = 1; i < count; ++i) {
        const char *word = words[i];
        if (!strcmp(word, "--describe")) {
            options->describe = 1;
        } else if (!strcmp(word, "--bench")) {
            options->bench = 1;
        } else if (!strcmp(word, "--json")) {
            options->json = 1;
        } else if (!strcmp(word, "-h") || !strcmp(word, "--help")) {
            fputs(usage, stdout);
            fputs(usage_of_sizes, stdout);
            fputs(usage_of_stream, stdout);
            exit(EXIT_FINE);
        } else if (!strcmp(word, "-i") || !strcmp(word, "--input")) {
            bind_file("input", value_of(count, words, &i), model->inputs, model->input_count, options->inputs);
        } else if (takes_size(word)) {
            take_size(value_of(count, words, &i));
        } else if (!strcmp(word, "-o") || !strcmp(word, "--output")) {
            bind_file("output", value_of(count, words, &i), model->outputs, model->output_count, options->outputs);
        } else if (!strcmp(word, "--expect")) {
            bind_file("output", value_of(count, words, &i), model->outputs, model->output_count, options->expected);
        } else if (!strcmp(word, "--rtol")) {
            options->rtol = tolerance(word, value_of(count, words, &i));
        } else if (!strcmp(word, "--atol")) {
            options->atol = tolerance(word, value_of(count, words, &i));
        } else if (!strcmp(word, "--seed")) {
            options->seed = (unsigned long)whole_number(word, value_of(count, words, &i), 0, 0x7fffffff);
        } else if (!strcmp(word, "--threads")) {
            options->threads = (int)whole_number(word, value_of(count, words, &i), 1, model->max_threads);
        } else if (!strcmp(word, "--warmup")) {
            options->warmup = whole_number(word, value_of(count, words, &i), 0, 1000000);
        } else if (!strcmp(word, "--runs")) {
            options->runs = whole_number(word, value_of(count, words, &i), 1, 1000000);
        } else if (!strcmp(word, "--affinity")) {
            options->affinity = value_of(count, words, &i);
        } else {
            fail(EXIT_USAGE, "unknown option %s; --help lists the options", word);
        }
    }
}

void set_affinity(const char *list) {
    cpu_set_t set;
    const char *at = list;
    CPU_ZERO(&set);
    while (*at) {
        char *end;
        long first = strtol(at, &end, 10);
        int good = end != at && first >= 0;
        long last = first;
        if (good && *end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
            good = end != at;
        }
        if (!good || last < first || last >= CPU_SETSIZE || (*end && *end != ',')) {
            fail(EXIT_USAGE, "--affinity %s: give processors such as 4-7 or 0,2", list);
        }
        for (long cpu = first; cpu <= last; ++cpu) {
            CPU_SET((int)cpu, &set);
        }
        at = *end ? end + 1 : end;
    }
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        fail(EXIT_ERROR, "--affinity %s: this machine has none of these processors, or does not grant them", list);
    }
}
