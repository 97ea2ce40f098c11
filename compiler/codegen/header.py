"""The C header that goes beside a library: the model's own constants and its functions, in C89 and C++.

    header_text(spec) -> text of <name>.h        model_text(spec, ...) -> text of the C file behind it

The header needs <stddef.h> only and mentions no type that is not its own. Every name starts with the model's.
"""

from __future__ import annotations

from ..spec import TensorSpec
from .names import comment, literal
from .processor import processor_check
from .spec import ABI, LibrarySpec
from .transfers import scratchpad_text, transfer_header, transfer_text

_CODES = ("OK", "ERROR_ARGUMENT", "ERROR_THREADS", "ERROR_MEMORY", "ERROR_ARENA", "ERROR_BUSY", "ERROR_KERNEL",
          "ERROR_WORKSPACE", "ERROR_SYSTEM", "ERROR_PROCESSOR", "ERROR_TRANSFER")  # fmt: skip


def header_text(spec: LibrarySpec) -> str:
    """The public header: what the model takes and gives, then how to create, run and destroy it."""
    name, upper = spec.identifier, spec.identifier.upper()
    # in the name's own letters: foo.h and FOO.h are two headers; zlib.h of others begins with ZLIB_H
    guard = f"HALOTILE_MODEL_{name}_H"
    constants = "\n".join(
        [
            f"#define {upper}_INPUTS {len(spec.inputs)}",
            f"#define {upper}_OUTPUTS {len(spec.outputs)}",
            f"#define {upper}_WEIGHT_BYTES {_size(spec.weight_bytes)}",
            f"#define {upper}_MAX_THREADS {spec.max_threads}",
            "/* Bytes of the arena for a number of threads; exactly what a run uses. */",
            f"#define {upper}_ARENA_BYTES(threads) \\",
            f"    ({_size(spec.planned_bytes)} + (unsigned long)(threads) * {_size(spec.workspace_bytes)})",
            f"#define {upper}_ARENA_ALIGNMENT 64",
        ]
    )
    tensors = "\n".join(
        _tensor_constants(upper, kind, index, tensor)
        for kind, group in (("INPUT", spec.inputs), ("OUTPUT", spec.outputs))
        for index, tensor in enumerate(group)
    )
    codes = "\n".join(f"#define {upper}_{code} {value}" for value, code in enumerate(_CODES))
    timers = _TIMERS.format(name=name, upper=upper, count=spec.timers) if spec.timers else ""
    if spec.scratchpad_bytes:
        timers += transfer_header(name, spec.scratchpad_bytes)
    body = _TEMPLATE.format(
        name=name, upper=upper, constants=constants, tensors=tensors, codes=codes, timers=timers
    )
    taken = _TAKEN.format(name=name, upper=upper)
    return (
        f"/* {comment(spec.name)}: a model compiled by Halotile {spec.version} for {comment(spec.target.id)}.\n *\n"
        f"{_outline(spec)} */\n#ifndef {guard}\n#define {guard}\n{taken}{body}\n#endif\n"
    )


def _size(value: int) -> str:
    return f"{value}UL"


def _shape(tensor: TensorSpec) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def _outline(spec: LibrarySpec) -> str:
    lines = []
    for kind, group in (("input", spec.inputs), ("output", spec.outputs)):
        for index, tensor in enumerate(group):
            lines.append(
                f" *   {kind} {index}  {comment(tensor.name)}: {_shape(tensor)}, {tensor.nbytes} bytes\n"
            )
    return "".join(lines)


def _tensor_constants(upper: str, kind: str, index: int, tensor: TensorSpec) -> str:
    prefix = f"{upper}_{kind}_{index}"
    lines = [
        f"\n/* {kind.lower()} {index}, {comment(tensor.name)}: {_shape(tensor)} */",
        f"#define {prefix}_NAME {literal(tensor.name)}",
        f"#define {prefix}_DTYPE {literal(tensor.dtype)}",
        f"#define {prefix}_RANK {len(tensor.shape)}",
        f"#define {prefix}_ELEMENTS {_size(tensor.elements)}",
        f"#define {prefix}_BYTES {_size(tensor.nbytes)}",
    ]
    if tensor.shape:
        lines.append(f"#define {prefix}_SHAPE {{{', '.join(map(str, tensor.shape))}}}")
    return "\n".join(lines)


_TAKEN = """
#ifdef {upper}_INPUTS
#error "{name}.h: another header has defined {upper}_...; give one of the two models another name (--name)"
#endif
"""

_TEMPLATE = """
#include <stddef.h>

#ifdef __cplusplus
extern "C" {{
#endif

{constants}
{tensors}

/* Error codes; {name}_error_text gives the words. */
{codes}

typedef struct {name}_tensor {{
    const char *name;  /* the name in the ONNX model */
    const char *dtype; /* "float32", "int64", "bool" (one byte), ... */
    size_t rank;
    const size_t *shape; /* rank dimensions, row-major */
    size_t elements;
    size_t bytes;
}} {name}_tensor;

typedef struct {name}_description {{
    unsigned abi; /* version of this structure */
    const char *name;
    const char *version; /* of Halotile */
    const char *target;
    const char *fingerprint; /* of code, weights and interface */
    size_t input_count;
    const {name}_tensor *inputs;
    size_t output_count;
    const {name}_tensor *outputs;
    size_t weight_bytes;
    size_t planned_bytes;   /* arena: intermediates */
    size_t workspace_bytes; /* arena: scratch for each thread */
    int max_threads;
    int default_threads; /* 0: as many as the process may use */
}} {name}_description;

typedef struct {name}_instance {name}_instance;

/* Facts about the model; never fails. */
const {name}_description *{name}_describe(void);

/* Bytes of the arena for a number of threads (0: the default), or 0 when there can't be so many. */
size_t {name}_arena_bytes(int threads);

/* Makes an instance with its arena and its threads (0: the default). Returns an error code. */
int {name}_create(int threads, {name}_instance **instance);

/* The same in memory of yours: at least {name}_arena_bytes(threads), aligned to {upper}_ARENA_ALIGNMENT, and not
   touched by anybody else while a run is under way. Its contents need not survive between runs. */
int {name}_create_in(int threads, void *arena, size_t arena_bytes, {name}_instance **instance);

/* Computes all outputs. The pointers come in the order above, each aligned to its element; outputs overlap nothing.
   Allocates nothing. Different instances may run at once; one instance that is running already gives
   {upper}_ERROR_BUSY. */
int {name}_run({name}_instance *instance, const void *const *inputs, void *const *outputs);

/* Threads of an instance, the caller's own included. */
int {name}_threads(const {name}_instance *instance);

/* Ends an instance that is not running; NULL is fine. */
void {name}_destroy({name}_instance *instance);

/* What an error code means, in English. */
const char *{name}_error_text(int code);
{timers}
#ifdef __cplusplus
}}
#endif
"""


_TIMERS = """
/* This library was built with timers, which cost a clock reading for each kernel. */
#define {upper}_KERNELS {count}

/* Seconds of each of the {upper}_KERNELS kernels in the last run, in the manifest's order. Returns an error code. */
int {name}_kernel_seconds(const {name}_instance *instance, double *seconds);
"""


def model_text(spec: LibrarySpec, fingerprint: str) -> str:
    """The C file that ties the runtime, the kernels and the header together under the model's name."""
    name = spec.identifier
    inputs, outputs = len(spec.inputs), len(spec.outputs)
    pad = bool(spec.scratchpad_bytes)
    parameters = ", ".join(["void *"] * (inputs + outputs) + ["const void *", "void *"] + ["void *"] * pad)
    arguments = ", ".join(
        [f"(void *)inputs[{i}]" for i in range(inputs)]
        + [f"outputs[{i}]" for i in range(outputs)]
        + ["weights", "arena"]
        + ["scratchpad_of(arena)"] * pad
    )
    weights = "halotile_weights" if spec.weight_bytes else "no_weights"
    return _MODEL.format(
        name=name,
        parameters=parameters,
        arguments=arguments,
        weights=weights,
        processor_check=processor_check(spec.target, spec.matrix_unit)
        + (scratchpad_text(name, spec.scratchpad_bytes, spec.scratchpad_offset) if pad else ""),
        declare_weights=(
            "extern const unsigned char halotile_weights[];"
            if spec.weight_bytes
            else "static const unsigned char no_weights[64];"
        ),
        inputs=inputs,
        outputs=outputs,
        planned=_size(spec.planned_bytes),
        workspace=_size(spec.workspace_bytes),
        max_threads=spec.max_threads,
        default_threads=spec.default_threads,
        tensors=_tensor_table(name, "inputs", spec.inputs) + _tensor_table(name, "outputs", spec.outputs),
        abi=ABI,
        text=literal(spec.name),
        version=literal(spec.version),
        target=literal(spec.target.id),
        fingerprint=literal(fingerprint),
        weight_bytes=_size(spec.weight_bytes),
        timers=_size(spec.timers),
        flush_denormals=int(spec.flush_denormals),
    ) + (_MODEL_TIMERS.format(name=name) if spec.timers else "") + (
        transfer_text(name) if pad else ""
    )


def _tensor_table(name: str, kind: str, tensors: tuple[TensorSpec, ...]) -> str:
    shapes = "".join(
        f"static const size_t {kind}_{i}[] = {{{', '.join(map(str, t.shape)) or '1'}}};\n"
        for i, t in enumerate(tensors)
    )
    rows = "".join(
        f"    {{{literal(t.name)}, {literal(t.dtype)}, {len(t.shape)}, {kind}_{i}, {_size(t.elements)}, "
        f"{_size(t.nbytes)}}},\n"
        for i, t in enumerate(tensors)
    )
    return (
        f"{shapes}static const {name}_tensor {kind}_table[] = {{\n{rows or '    {0, 0, 0, 0, 0, 0},'}\n}};\n"
    )


_MODEL = """#pragma GCC visibility push(default)
#include "../{name}.h"
#pragma GCC visibility pop

#include "instance.h"
#include "model.h"

int32_t halotile_kernel_main({parameters});
{declare_weights}

{processor_check}
static int32_t call(const void *const *inputs, void *const *outputs, const void *weights, void *arena) {{
    (void)inputs, (void)outputs;
    return halotile_kernel_main({arguments});
}}

const struct halotile_model halotile_model = {{
    call, processor_fits, {weights}, {inputs}, {outputs}, {planned}, {workspace}, {max_threads}, {default_threads},
    {timers}, {flush_denormals},
}};

{tensors}
static const {name}_description description = {{
    {abi}, {text}, {version}, {target}, {fingerprint},
    {inputs}, inputs_table, {outputs}, outputs_table,
    {weight_bytes}, {planned}, {workspace}, {max_threads}, {default_threads},
}};

const {name}_description *{name}_describe(void) {{ return &description; }}

size_t {name}_arena_bytes(int threads) {{ return halotile_arena_bytes(threads); }}

static int make(int threads, const struct halotile_memory *arena, {name}_instance **instance) {{
    struct halotile_instance *made;
    if (!instance) {{
        return HALOTILE_ERROR_ARGUMENT;
    }}
    int code = halotile_create(threads, arena, &made);
    *instance = ({name}_instance *)made;
    return code;
}}

int {name}_create(int threads, {name}_instance **instance) {{ return make(threads, 0, instance); }}

int {name}_create_in(int threads, void *arena, size_t arena_bytes, {name}_instance **instance) {{
    struct halotile_memory memory = {{arena, arena_bytes}};
    return make(threads, &memory, instance);
}}

int {name}_run({name}_instance *instance, const void *const *inputs, void *const *outputs) {{
    return halotile_run((struct halotile_instance *)instance, inputs, outputs);
}}

int {name}_threads(const {name}_instance *instance) {{
    return halotile_threads((const struct halotile_instance *)instance);
}}

void {name}_destroy({name}_instance *instance) {{ halotile_destroy((struct halotile_instance *)instance); }}

const char *{name}_error_text(int code) {{ return halotile_error_text(code); }}
"""

_MODEL_TIMERS = """
int {name}_kernel_seconds(const {name}_instance *instance, double *seconds) {{
    return halotile_kernel_seconds((const struct halotile_instance *)instance, seconds);
}}
"""
