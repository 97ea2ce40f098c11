"""The example program beside a library whose runs choose sizes: it runs the model at the typical ones, or at others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .names import comment, members

if TYPE_CHECKING:
    from .spec import LibrarySpec


def open_example(spec: LibrarySpec, link: str) -> str:
    """The C text; ``link`` is what the compiler's command line needs to link it."""
    name, fields = spec.identifier, members([s.name for s in spec.symbols])
    choices = "".join(
        f"    if (count > {i + 1}) {{\n        shape.{field} = strtol(words[{i + 1}], NULL, 10);\n    }}\n"
        for i, field in enumerate(fields)
    )
    return _EXAMPLE.format(
        name=name, upper=name.upper(), link=link, text=comment(spec.name), target=comment(spec.target.id),
        usage=" ".join(f"[{field}]" for field in fields), choices=choices,
    )  # fmt: skip


_EXAMPLE = """/* {text}, compiled for {target}: runs the model once on inputs of one value and prints what comes out.
 *
 *     cc -O2 main.c {link} -o main && ./main {usage}
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "{name}.h"

static size_t elements_of(const int64_t *dims, size_t rank) {{
    size_t elements = 1, i;
    for (i = 0; i < rank; ++i) {{
        elements *= (size_t)dims[i];
    }}
    return elements;
}}

/* Memory for a tensor; every float32 element is one, every byte of any other type is zero. */
static void *make(const {name}_tensor *tensor, size_t elements) {{
    void *data = calloc(elements ? elements : 1, tensor->element_bytes);
    size_t i;
    if (data && strcmp(tensor->dtype, "float32") == 0) {{
        for (i = 0; i < elements; ++i) {{
            ((float *)data)[i] = 1.0f;
        }}
    }}
    return data;
}}

static void print(const {name}_tensor *tensor, const int64_t *dims, const void *data) {{
    size_t elements = elements_of(dims, tensor->rank), i;
    printf("%s: %s[", tensor->name, tensor->dtype);
    for (i = 0; i < tensor->rank; ++i) {{
        printf("%s%ld", i ? ", " : "", (long)dims[i]);
    }}
    printf("], %lu elements", (unsigned long)elements);
    if (strcmp(tensor->dtype, "float32") == 0) {{
        for (i = 0; i < elements && i < 8; ++i) {{
            printf("%s%.9g", i ? " " : ": ", ((const float *)data)[i]);
        }}
    }}
    printf("\\n");
}}

static int failed(int code) {{
    if (code != {upper}_OK) {{
        fprintf(stderr, "{name}: %s\\n", {name}_error_text(code));
    }}
    return code != {upper}_OK;
}}

int main(int count, char **words) {{
    const {name}_description *model = {name}_describe();
    {name}_shape shape = {upper}_TYPICAL_SHAPE; /* the sizes of this run */
    int64_t dims[{upper}_SHAPE_DIMS + 1];
    const int64_t *at = dims; /* those of the next tensor: of all inputs, then of all outputs */
    const int64_t *of_outputs;
    const void *inputs[{upper}_INPUTS + 1];
    void *outputs[{upper}_OUTPUTS + 1];
    {name}_instance *instance = NULL;
    size_t i;

{choices}    if (failed({name}_shape_dims(&shape, dims))) {{
        return 1;
    }}
    for (i = 0; i < model->input_count; at += model->inputs[i++].rank) {{
        if (!(inputs[i] = make(&model->inputs[i], elements_of(at, model->inputs[i].rank)))) {{
            return 1;
        }}
    }}
    of_outputs = at;
    for (i = 0; i < model->output_count; at += model->outputs[i++].rank) {{
        if (!(outputs[i] = make(&model->outputs[i], elements_of(at, model->outputs[i].rank)))) {{
            return 1;
        }}
    }}
    /* 0: the default number of threads. One instance serves this shape and all whose arena takes no more: create it for
       the largest, and run it at any. */
    if (failed({name}_create_for(0, &shape, &instance)) ||
        failed({name}_run_shape(instance, &shape, inputs, outputs))) {{
        return 1;
    }}
    at = of_outputs;
    for (i = 0; i < model->output_count; at += model->outputs[i++].rank) {{
        print(&model->outputs[i], at, outputs[i]);
    }}
    {name}_destroy(instance);
    for (i = 0; i < model->input_count; ++i) {{
        free((void *)inputs[i]);
    }}
    for (i = 0; i < model->output_count; ++i) {{
        free(outputs[i]);
    }}
    return 0;
}}
"""
