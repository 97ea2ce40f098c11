"""The C header that goes beside a library: the model's own constants and its functions, in C89 and C++.

    header_text(spec) -> text of <name>.h

The header needs <stddef.h> only (and <stdint.h> for open shapes and streams) and mentions no type that is not its
own. Every name starts with the model's.
"""

from __future__ import annotations

from ..images import Image, made
from ..spec import TensorSpec
from .names import comment, literal
from .shapes_header import is_fixed, shape_calls, shape_constants, shape_types
from .spec import LibrarySpec
from .stream_header import CODES as OF_STREAMS
from .stream_header import stream_header
from .transfers import transfer_header

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
            *([] if spec.symbols else _arena_macro(spec, upper)),
            f"#define {upper}_ARENA_ALIGNMENT 64",
            *([shape_constants(upper, spec.symbols, spec.conditions, spec.dimensions)] if spec.symbols else []),
        ]
    )
    tensors = "\n".join(
        _tensor_constants(upper, kind, index, tensor)
        for kind, group in (("INPUT", spec.inputs), ("OUTPUT", spec.outputs))
        for index, tensor in enumerate(group)
    )
    known = {code: value for value, code in enumerate((*_CODES, "ERROR_SHAPE") if spec.symbols else _CODES)}
    known |= OF_STREAMS if spec.stream else {}
    codes = "\n".join(f"#define {upper}_{code} {value}" for code, value in known.items())
    timers = _TIMERS.format(name=name, upper=upper, count=spec.timers) if spec.timers else ""
    if spec.scratchpad_bytes:
        timers += transfer_header(name, spec.scratchpad_bytes)
    include, types, calls = "", _TYPES.format(name=name), _CALLS.format(name=name, upper=upper)
    if spec.stream:
        include, timers = "#include <stdint.h>\n", timers + stream_header(spec)
    if spec.symbols:
        include, types = "#include <stdint.h>\n", shape_types(name, spec.symbols)
        calls = shape_calls(name, upper, spec.inputs, spec.outputs)
    body = _TEMPLATE.format(
        name=name, constants=constants, tensors=tensors, codes=codes, timers=timers, include=include, types=types,
        calls=calls,
    )  # fmt: skip
    taken = _TAKEN.format(name=name, upper=upper)
    return (
        f"/* {comment(spec.name)}: a model compiled by Halotile {spec.version} for {comment(spec.target.id)}.\n *\n"
        f"{_outline(spec)} */\n#ifndef {guard}\n#define {guard}\n{taken}{body}\n#endif\n"
    )


def _arena_macro(spec: LibrarySpec, upper: str) -> list[str]:
    return [
        "/* Bytes of the arena for a number of threads; exactly what a run uses. */",
        f"#define {upper}_ARENA_BYTES(threads) \\",
        f"    ({_size(spec.planned_bytes)} + (unsigned long)(threads) * {_size(spec.workspace_bytes)})",
    ]


def _size(value: int) -> str:
    return f"{value}UL"


def _shape(tensor: TensorSpec) -> str:
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def _outline(spec: LibrarySpec) -> str:
    lines, frames = [], _frames(spec)
    for kind, group in (("input", spec.inputs), ("output", spec.outputs)):
        for index, tensor in enumerate(group):
            size = f", {tensor.nbytes} bytes" if is_fixed(tensor) else ""
            given = frames.get(tensor.name) if kind == "input" else None
            frame = "" if given is None else f"; {given}"
            lines.append(f" *   {kind} {index}  {comment(tensor.name)}: {comment(_shape(tensor))}{size}{frame}\n")
    return "".join(lines)


def _frames(spec: LibrarySpec) -> dict[str, str]:
    """Of each input that is a frame, or a plane of one, what it is."""
    found = {}
    for name, fields in (spec.options.get("inputs") or {}).items():
        image = made(fields, Image, name)
        planes = image.planes(name)
        for plane in planes:
            found[plane] = image.text() + ("" if len(planes) == 1 else f", plane {plane.rpartition('/')[2]}")
    return found


def _tensor_constants(upper: str, kind: str, index: int, tensor: TensorSpec) -> str:
    prefix = f"{upper}_{kind}_{index}"
    lines = [
        f"\n/* {kind.lower()} {index}, {comment(tensor.name)}: {comment(_shape(tensor))} */",
        f"#define {prefix}_NAME {literal(tensor.name)}",
        f"#define {prefix}_DTYPE {literal(tensor.dtype)}",
        f"#define {prefix}_RANK {len(tensor.shape)}",
    ]
    if is_fixed(tensor):
        lines += [
            f"#define {prefix}_ELEMENTS {_size(tensor.elements)}",
            f"#define {prefix}_BYTES {_size(tensor.nbytes)}",
        ]
    if tensor.shape and is_fixed(tensor):
        lines.append(f"#define {prefix}_SHAPE {{{', '.join(map(str, tensor.shape))}}}")
    return "\n".join(lines)


_TAKEN = """
#ifdef {upper}_INPUTS
#error "{name}.h: another header has defined {upper}_...; give one of the two models another name (--name)"
#endif
"""

_TEMPLATE = """
#include <stddef.h>
{include}
#ifdef __cplusplus
extern "C" {{
#endif

{constants}
{tensors}

/* Error codes; {name}_error_text gives the words. */
{codes}

{types}
typedef struct {name}_instance {name}_instance;

/* Facts about the model; never fails. */
const {name}_description *{name}_describe(void);
{calls}
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


_TYPES = """typedef struct {name}_tensor {{
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
"""

_CALLS = """
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
"""

_TIMERS = """
/* This library was built with timers, which cost a clock reading for each kernel. */
#define {upper}_KERNELS {count}

/* Seconds of each of the {upper}_KERNELS kernels in the last run, in the manifest's order. Returns an error code. */
int {name}_kernel_seconds(const {name}_instance *instance, double *seconds);
"""
