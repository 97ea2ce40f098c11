/* model_run --stream: rows of an image of any height in, rows of the outputs out, in memory that is the same for all. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

const char usage_of_stream[] =
    "\n"
    "  --stream                an image of any height: plain rows on stdin, plain rows on stdout; -i [NAME=]FILE and\n"
    "                          -o [NAME=]FILE for other places. A row has its pixels, a pixel all of its channels\n"
    "  --type T                of the rows that come: uint8, uint16, or the model's own (the default)\n"
    "  --target-type T         of the rows that go: rounded, and held in their range\n"
    "  --scale S               multiply what comes, such as 1/255\n"
    "  --target-scale S        multiply what goes\n"
    "  --rows N                stop behind so many rows; fewer are an error\n";

struct plan {
    const halotile_description *model;
    const halotile_steps *steps;
    halotile_tensor *inputs, *outputs; /* those of rows, and behind them those that are given once or come in the end */
    size_t input_count, output_count;
    const char **sources, **targets;
    enum number source_number, target_number;
    float scale, target_scale;
    int threads;
    long rows; /* 0: until the source ends */
    struct rows *in, *out;
};

static halotile_tensor tensor_of(const halotile_rows *rows) {
    return (halotile_tensor){.name = rows->name, .dtype = rows->dtype, .rank = rows->rank, .shape = rows->shape};
}

static halotile_tensor *tensors_of(const halotile_rows *rows, size_t count, const halotile_tensor *all,
                                   const size_t *more, size_t more_count) {
    halotile_tensor *tensors = allocate((count + more_count + 1) * sizeof *tensors);
    for (size_t i = 0; i < count; ++i) {
        tensors[i] = tensor_of(&rows[i]);
    }
    for (size_t i = 0; i < more_count; ++i) {
        tensors[count + i] = all[more[i]];
    }
    return tensors;
}

static enum number number_of(const char *option, const char *text, const halotile_rows *rows, size_t count) {
    if (!strcmp(text, "uint8") || !strcmp(text, "uint16")) {
        int own = count && !strcmp(rows[0].dtype, text);
        return own ? OWN : !strcmp(text, "uint8") ? BYTES : SHORTS;
    }
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(rows[i].dtype, text)) {
            fail(EXIT_USAGE, "%s %s: '%s' is %s; give uint8, uint16 or that", option, text, rows[i].name,
                 rows[i].dtype);
        }
    }
    return OWN;
}

static float factor(const char *option, const char *text) {
    char *end;
    double above = strtod(text, &end), below = 1;
    int good = end != text;
    if (good && *end == '/') {
        const char *second = end + 1;
        below = strtod(second, &end);
        good = end != second && below != 0;
    }
    if (!good || *end || above - above != 0) {
        fail(EXIT_USAGE, "%s %s: give a number such as 0.5 or 1/255", option, text);
    }
    return (float)(above / below);
}

static void read_words(struct plan *plan, int count, char **words) {
    const halotile_steps *steps = plan->steps;
    for (int i = 1; i < count; ++i) {
        const char *word = words[i];
        if (!strcmp(word, "--stream")) {
            continue;
        }
        if (!strcmp(word, "-h") || !strcmp(word, "--help")) {
            fputs("usage: model_run --stream [options]", stdout);
            fputs(usage_of_stream, stdout);
            fputs("  --threads N, --affinity LIST as without it\n", stdout);
            exit(EXIT_FINE);
        }
        const char *value = value_of(count, words, &i);
        if (!strcmp(word, "-i") || !strcmp(word, "--input")) {
            bind_file("input", value, plan->inputs, plan->input_count, plan->sources);
        } else if (!strcmp(word, "-o") || !strcmp(word, "--output")) {
            bind_file("output", value, plan->outputs, plan->output_count, plan->targets);
        } else if (!strcmp(word, "--type")) {
            plan->source_number = number_of(word, value, steps->inputs, steps->input_count);
        } else if (!strcmp(word, "--target-type")) {
            plan->target_number = number_of(word, value, steps->outputs, steps->output_count);
        } else if (!strcmp(word, "--scale")) {
            plan->scale = factor(word, value);
        } else if (!strcmp(word, "--target-scale")) {
            plan->target_scale = factor(word, value);
        } else if (!strcmp(word, "--rows")) {
            plan->rows = whole_number(word, value, 1, 2000000000);
        } else if (!strcmp(word, "--threads")) {
            plan->threads = (int)whole_number(word, value, 1, plan->model->max_threads);
        } else if (!strcmp(word, "--affinity")) {
            set_affinity(value);
        } else {
            fail(EXIT_USAGE, "%s does not go with --stream; --stream --help lists the options", word);
        }
    }
}

/* Where nothing else is said: the one input is the standard input, the one output the standard output. */
static void settle_places(const char *kind, const halotile_tensor *tensors, size_t count, const char **files) {
    size_t standard = 0;
    for (size_t i = 0; i < count; ++i) {
        files[i] = files[i] || count > 1 ? files[i] : "-";
        if (!files[i]) {
            fail(EXIT_ERROR, "%s '%s' has no file: -%c %s=FILE", kind, tensors[i].name, *kind, tensors[i].name);
        }
        standard += !strcmp(files[i], "-");
    }
    if (standard > 1) {
        fail(EXIT_ERROR, "one %s can be the standard %s, and %zu are", kind, kind, standard);
    }
}

static halotile_stream *open_stream(struct plan *plan) {
    const halotile_steps *steps = plan->steps;
    void **kept = allocate((steps->kept_count + 1) * sizeof *kept);
    halotile_shape shape = {0, (const void *const *)kept};
    halotile_stream *stream = NULL;
    for (size_t i = 0; i < steps->kept_count; ++i) {
        const halotile_tensor *tensor = &plan->inputs[steps->input_count + i];
        kept[i] = allocate(tensor->bytes);
        tensor_read(plan->sources[steps->input_count + i], tensor, kept[i]);
    }
    int code = MODEL(open)(plan->threads, &shape, &stream);
    if (code != 0) {
        fail(EXIT_ERROR, "can't start %s, which was built for %s and needs %zu bytes: %s", plan->model->name,
             plan->model->target, MODEL(stream_bytes)(plan->threads, &shape), MODEL(error_text)(code));
    }
    for (size_t i = 0; i < steps->kept_count; ++i) {
        free(kept[i]);
    }
    free(kept);
    return stream;
}

static void check(int code, const struct plan *plan) {
    if (code != 0) {
        fail(EXIT_ERROR, "row %lld of '%s': %s", (long long)plan->in[0].done, plan->in[0].about->name,
             MODEL(error_text)(code));
    }
}

static void pull_all(struct plan *plan, halotile_stream *stream) {
    int more = 1;
    while (more) {
        more = 0;
        for (size_t i = 0; i < plan->steps->output_count; ++i) {
            const halotile_rows *about = &plan->steps->outputs[i];
            int64_t ready = MODEL(ready_of)(stream, i), most = (int64_t)about->shape[about->axis];
            ready = ready < most ? ready : most;
            if (ready > 0) {
                check(MODEL(pull_of)(stream, i, plan->out[i].tensor, ready), plan);
                rows_write(&plan->out[i], ready);
                more = 1;
            }
        }
    }
}

/* Reads the next step of every input; gives the rows of the first one. */
static int64_t read_step(struct plan *plan, const void **rows) {
    const halotile_steps *steps = plan->steps;
    int64_t first = (int64_t)steps->inputs[0].shape[steps->inputs[0].axis], count = first;
    if (plan->rows && plan->rows - plan->in[0].done < count) {
        count = plan->rows - plan->in[0].done;
    }
    int64_t wanted = count;
    for (size_t i = 0; i < steps->input_count; ++i) {
        int64_t own = (int64_t)steps->inputs[i].shape[steps->inputs[i].axis];
        int64_t got = rows_read(&plan->in[i], i && !plan->rows ? own : wanted * own / first);
        if (!i) {
            count = got;
        } else if (got != count * own / first) {
            fail(EXIT_ERROR, "'%s' ends after %lld rows, and '%s' after %lld, which is not as much of the image",
                 plan->in[0].about->name, (long long)plan->in[0].done, plan->in[i].about->name,
                 (long long)plan->in[i].done);
        }
        rows[i] = plan->in[i].tensor;
    }
    if (plan->rows && count < wanted) {
        fail(EXIT_ERROR, "'%s' ends after %lld of %ld rows", plan->in[0].about->name, (long long)plan->in[0].done,
             plan->rows);
    }
    return count;
}

static void run_pass(struct plan *plan, halotile_stream *stream) {
    const void **rows = allocate((plan->steps->input_count + 1) * sizeof *rows);
    for (int64_t count; (count = read_step(plan, rows)) > 0;) {
        check(MODEL(push_all)(stream, rows, count), plan);
        pull_all(plan, stream);
    }
    check(MODEL(finish)(stream), plan);
    pull_all(plan, stream);
    free(rows);
}

static void write_still(struct plan *plan, halotile_stream *stream) {
    const halotile_steps *steps = plan->steps;
    void **outputs = allocate((steps->still_count + 1) * sizeof *outputs);
    for (size_t i = 0; i < steps->still_count; ++i) {
        outputs[i] = allocate(plan->outputs[steps->output_count + i].bytes);
    }
    check(MODEL(still)(stream, outputs), plan);
    for (size_t i = 0; i < steps->still_count; ++i) {
        const halotile_tensor *tensor = &plan->outputs[steps->output_count + i];
        const char *path = plan->targets[steps->output_count + i];
        if (strcmp(path, "-")) {
            tensor_write(path, tensor, outputs[i]);
        } else {
            struct rows out = {.path = path, .file = 1};
            write_bytes(&out, outputs[i], tensor->bytes);
        }
        free(outputs[i]);
    }
    free(outputs);
}

static void prepare(struct plan *plan) {
    const halotile_steps *steps = plan->steps;
    plan->in = allocate((steps->input_count + 1) * sizeof *plan->in);
    plan->out = allocate((steps->output_count + 1) * sizeof *plan->out);
    for (size_t i = 0; i < steps->input_count; ++i) {
        rows_prepare(&plan->in[i], &steps->inputs[i], plan->sources[i], plan->source_number, plan->scale);
        rows_open_source(&plan->in[i]);
        if (steps->passes > 1 && !rows_rewindable(&plan->in[i])) {
            fail(EXIT_ERROR, "%s needs all rows, in %d passes, and a pipe can't be read again: give a file",
                 plan->model->name, steps->passes);
        }
    }
    for (size_t i = 0; i < steps->output_count; ++i) {
        rows_prepare(&plan->out[i], &steps->outputs[i], plan->targets[i], plan->target_number, plan->target_scale);
        rows_open_target(&plan->out[i]);
    }
}

static void give_back(struct plan *plan) {
    for (size_t i = 0; i < plan->steps->input_count; ++i) {
        rows_free(&plan->in[i]);
    }
    for (size_t i = 0; i < plan->steps->output_count; ++i) {
        rows_free(&plan->out[i]);
    }
    free(plan->in);
    free(plan->out);
    free(plan->inputs);
    free(plan->outputs);
    free(plan->sources);
    free(plan->targets);
}

int run_stream(int count, char **words) {
    struct plan plan = {.model = the_model(), .steps = MODEL(stream_steps)(), .scale = 1, .target_scale = 1};
    const halotile_steps *steps = plan.steps;
    plan.input_count = steps->input_count + steps->kept_count;
    plan.output_count = steps->output_count + steps->still_count;
    plan.inputs = tensors_of(steps->inputs, steps->input_count, plan.model->inputs, steps->kept, steps->kept_count);
    plan.outputs =
        tensors_of(steps->outputs, steps->output_count, plan.model->outputs, steps->still, steps->still_count);
    plan.sources = allocate((plan.input_count + 1) * sizeof *plan.sources);
    plan.targets = allocate((plan.output_count + 1) * sizeof *plan.targets);
    signal(SIGPIPE, SIG_IGN); /* a reader that has gone is an error in words */
    read_words(&plan, count, words);
    if (steps->strips > 1) {
        fail(EXIT_ERROR, "within its memory budget %s computes an image in %zu strips of columns, as `halotile stream` "
             "does; build it with a larger budget for rows of the whole width", plan.model->name, steps->strips);
    }
    settle_places("input", plan.inputs, plan.input_count, plan.sources);
    settle_places("output", plan.outputs, plan.output_count, plan.targets);
    prepare(&plan);
    halotile_stream *stream = open_stream(&plan);
    for (int pass = 0; pass < steps->passes; ++pass) {
        for (size_t i = 0; pass && i < steps->input_count; ++i) {
            rows_rewind(&plan.in[i]);
        }
        check(pass ? MODEL(again)(stream) : 0, &plan);
        run_pass(&plan, stream);
    }
    if (steps->still_count) {
        write_still(&plan, stream);
    }
    MODEL(close)(stream);
    for (size_t i = 0; i < steps->output_count; ++i) {
        rows_close_target(&plan.out[i]);
    }
    give_back(&plan);
    return EXIT_FINE;
}

void print_stream(int threads, int json) {
    const halotile_steps *steps = MODEL(stream_steps)();
    size_t bytes = MODEL(stream_bytes)(threads, NULL);
    if (json) {
        printf(", \"stream\": {\"bytes\": %zu, \"step_rows\": %lld, \"least_rows\": %lld, \"multiple_rows\": %lld, "
               "\"passes\": %d}", bytes, (long long)steps->step_rows, (long long)steps->least_rows,
               (long long)steps->multiple_rows, steps->passes);
        return;
    }
    printf("streams: %zu bytes for any height, arena included, in steps of %lld rows, %d pass%s; the tensors are those "
           "of a step\n", bytes, (long long)steps->step_rows, steps->passes, steps->passes > 1 ? "es" : "");
}
