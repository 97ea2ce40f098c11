"""The example program beside a library that streams: rows on standard input to rows on standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .names import comment

if TYPE_CHECKING:
    from .spec import LibrarySpec


def stream_example(spec: LibrarySpec, link: str) -> str:
    """The C text; ``link`` is what the compiler's command line needs to link it."""
    name = spec.identifier
    return _EXAMPLE.format(
        name=name, upper=name.upper(), link=link, text=comment(spec.name), target=comment(spec.target.id)
    )


_EXAMPLE = """/* {text}, compiled for {target}: pushes rows of one value through a stream, a step at a time, and prints
 * how many come out and what the last of them begin with.
 *
 *     cc -O2 main.c {link} -o main && ./main [rows of the image]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "{name}.h"

/* Memory for a tensor of bytes; every float32 element is one, every byte of any other type is zero. */
static void *make(const char *dtype, size_t bytes) {{
    void *data = calloc(bytes ? bytes : 1, 1);
    size_t i;
    if (data && strcmp(dtype, "float32") == 0) {{
        for (i = 0; i < bytes / sizeof(float); ++i) {{
            ((float *)data)[i] = 1.0f;
        }}
    }}
    return data;
}}

static int failed(int code) {{
    if (code != {upper}_OK) {{
        fprintf(stderr, "{name}: %s\\n", {name}_error_text(code));
    }}
    return code != {upper}_OK;
}}

static const {name}_steps *steps;
static void **taken;    /* rows of each output */
static int64_t *counts; /* how many came */

/* Takes whatever rows are ready. */
static int take({name}_stream *stream) {{
    size_t i;
    int more = 1;
    while (more) {{
        more = 0;
        for (i = 0; i < steps->output_count; ++i) {{
            int64_t ready = {name}_ready_of(stream, i), most = (int64_t)steps->outputs[i].shape[steps->outputs[i].axis];
            ready = ready < most ? ready : most;
            if (ready > 0 && failed({name}_pull_of(stream, i, taken[i], ready))) {{
                return 0;
            }}
            counts[i] += ready;
            more |= ready > 0;
        }}
    }}
    return 1;
}}

int main(int count, char **words) {{
    const {name}_description *model = {name}_describe();
    {name}_stream *stream = NULL;
    {name}_shape shape = {{0, NULL}};
    const void **rows, **kept;
    int64_t steps_in_image, done;
    size_t i;
    int pass, code;

    steps = {name}_stream_steps();
    steps_in_image = (count > 1 ? strtol(words[1], NULL, 10) : 4 * (long)steps->step_rows) / steps->step_rows;
    rows = calloc(steps->input_count + 1, sizeof *rows);
    kept = calloc(steps->kept_count + 1, sizeof *kept);
    taken = calloc(steps->output_count + 1, sizeof *taken);
    counts = calloc(steps->output_count + 1, sizeof *counts);
    if (!rows || !kept || !taken || !counts) {{
        return 1;
    }}
    for (i = 0; i < steps->input_count; ++i) {{
        const {name}_rows *about = &steps->inputs[i];
        rows[i] = make(about->dtype, about->row_bytes * about->shape[about->axis]);
    }}
    for (i = 0; i < steps->kept_count; ++i) {{
        kept[i] = make(model->inputs[steps->kept[i]].dtype, model->inputs[steps->kept[i]].bytes);
    }}
    for (i = 0; i < steps->output_count; ++i) {{
        taken[i] = malloc(steps->outputs[i].row_bytes * steps->outputs[i].shape[steps->outputs[i].axis]);
    }}
    shape.kept = kept;
    if (failed({name}_open(0, &shape, &stream))) {{ /* 0: the default number of threads */
        return 1;
    }}
    for (pass = 0; pass < steps->passes; ++pass) {{ /* the image is pushed again for operators that need all of it */
        if (pass && failed({name}_again(stream))) {{
            return 1;
        }}
        for (done = 0; done < steps_in_image; ++done) {{ /* any number of rows is fine: here those of a step */
            code = {name}_push_all(stream, rows, (int64_t)steps->inputs[0].shape[steps->inputs[0].axis]);
            if (failed(code) || !take(stream)) {{
                return 1;
            }}
        }}
        if (failed({name}_finish(stream)) || !take(stream)) {{
            return 1;
        }}
    }}
    printf("%lu bytes for a stream of any height\\n", (unsigned long){name}_stream_bytes(0, &shape));
    for (i = 0; i < steps->output_count; ++i) {{
        printf("%s: %ld rows of %lu bytes", steps->outputs[i].name, (long)counts[i],
               (unsigned long)steps->outputs[i].row_bytes);
        if (strcmp(steps->outputs[i].dtype, "float32") == 0 && counts[i]) {{
            printf(", the last ones begin with %.9g", ((const float *)taken[i])[0]);
        }}
        printf("\\n");
    }}
    {name}_close(stream);
    for (i = 0; i < steps->input_count; ++i) {{
        free((void *)rows[i]);
    }}
    for (i = 0; i < steps->kept_count; ++i) {{
        free((void *)kept[i]);
    }}
    for (i = 0; i < steps->output_count; ++i) {{
        free(taken[i]);
    }}
    free(rows);
    free(kept);
    free(taken);
    free(counts);
    return 0;
}}
"""
