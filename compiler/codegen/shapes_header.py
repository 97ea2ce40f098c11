"""What the C side of a model with open shapes has in place of fixed numbers: a struct with a member for every size that
a run chooses, and functions of it.

    header   <name>_shape, its constants, <name>_shape_check, _arena_bytes_for, _create_for, _run_shape, ...
    C file   the table of what each size may be, and these functions by the runtime's shapes.c
"""

from __future__ import annotations

from ..spec import Condition, Symbol, TensorSpec
from .conditions import must_be
from .names import comment, members


def shape_constants(
    upper: str, symbols: tuple[Symbol, ...], conditions: tuple[Condition, ...], dimensions: int
) -> str:
    """The constants of the sizes: what each may be, and the shape that the build was planned for."""
    lines = [f"#define {upper}_SYMBOLS {len(symbols)}", f"#define {upper}_SHAPE_DIMS {dimensions}"]
    for symbol, member in zip(symbols, members([s.name for s in symbols]), strict=True):
        prefix = f"{upper}_{member.upper()}"
        lines += [
            f"/* {comment(f'{symbol.name}: {symbol.must_be}')} */",
            f"#define {prefix}_MIN {symbol.least}",
            f"#define {prefix}_MAX {symbol.most}",
            f"#define {prefix}_MULTIPLE {symbol.multiple}",
            f"#define {prefix}_TYPICAL {symbol.typical}",
        ]
    for condition in conditions:
        lines.append(f"/* {comment(f'{condition.left} must be {must_be(condition)}: {condition.told}')} */")
    typical = ", ".join(str(symbol.typical) for symbol in symbols)
    return "\n".join([*lines, f"#define {upper}_TYPICAL_SHAPE {{{typical}}}"])


def shape_types(name: str, symbols: tuple[Symbol, ...]) -> str:
    """The struct of a shape, and the descriptions of tensors and of the model."""
    fields = zip(symbols, members([s.name for s in symbols]), strict=True)
    text = "\n".join(f"    int64_t {member}; /* {comment(symbol.name)} */" for symbol, member in fields)
    return _TYPES.format(name=name, members=text)


def shape_calls(name: str, upper: str, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> str:
    """The functions that take a shape."""
    tensors = "\n".join(
        f"int {name}_{kind}_{i}_shape(const {name}_shape *shape, int64_t *dims); /* {comment(tensor.name)} */\n"
        f"size_t {name}_{kind}_{i}_bytes_for(const {name}_shape *shape);"
        for kind, group in (("input", inputs), ("output", outputs))
        for i, tensor in enumerate(group)
    )
    return _CALLS.format(name=name, upper=upper, tensors=tensors)


def is_fixed(tensor: TensorSpec) -> bool:
    """Whether no dimension of the tensor is open."""
    return all(isinstance(dim, int) for dim in tensor.shape)


_TYPES = """/* The sizes of one run. */
typedef struct {name}_shape {{
{members}
}} {name}_shape;

typedef struct {name}_symbol {{
    const char *name;    /* the name in the ONNX model */
    int64_t low;         /* the smallest size that is allowed */
    int64_t high;        /* the largest */
    int64_t multiple;    /* what sizes are multiples of */
    int64_t typical;     /* what the build was planned for */
    const char *allowed; /* low, high and multiple in words */
    const char *why;     /* what asks for them; may be empty */
}} {name}_symbol;

typedef struct {name}_tensor {{
    const char *name;  /* the name in the ONNX model */
    const char *dtype; /* "float32", "int64", "bool" (one byte), ... */
    size_t rank;
    const char *const *dims; /* rank dimensions, row-major: numbers, and formulas of the symbols' names */
    size_t element_bytes;
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
    int max_threads;
    int default_threads; /* 0: as many as the process may use */
    size_t symbol_count;
    const {name}_symbol *symbols; /* in the order of the members of {name}_shape */
}} {name}_description;
"""

_CALLS = """
/* Whether the model takes a shape: {upper}_OK, or {upper}_ERROR_SHAPE, for which {name}_error_text says which size is
   not what it may be. (It speaks of the last shape that this thread had refused.) */
int {name}_shape_check(const {name}_shape *shape);

/* Dimensions (as many as ..._RANK says) and bytes of each input and output at a shape; 0 bytes for a refused shape. */
{tensors}

/* The dimensions of all inputs, then of all outputs: {upper}_SHAPE_DIMS numbers. */
int {name}_shape_dims(const {name}_shape *shape, int64_t *dims);

/* Bytes of the arena at a shape for a number of threads (0: the default); exactly what a run uses. 0 when the shape is
   refused or there can't be so many threads. */
size_t {name}_arena_bytes_for(const {name}_shape *shape, int threads);

/* Makes an instance with its threads (0: the default), and with an arena that holds `most`: runs may have that shape,
   and every other one whose arena takes no more bytes. Returns an error code. */
int {name}_create_for(int threads, const {name}_shape *most, {name}_instance **instance);

/* The same in memory of yours: at least {name}_arena_bytes_for(most, threads), aligned to {upper}_ARENA_ALIGNMENT, and
   not touched by anybody else while a run is under way. Its contents need not survive between runs. */
int {name}_create_in_for(int threads, const {name}_shape *most, void *arena, size_t arena_bytes,
    {name}_instance **instance);

/* Computes all outputs at a shape. The pointers come in the order above, each aligned to its element; outputs overlap
   nothing. Allocates nothing, and writes nothing when the shape is refused ({upper}_ERROR_SHAPE) or the arena is too
   small for it (the same). Different instances may run at once; one instance that is running already gives
   {upper}_ERROR_BUSY. */
int {name}_run_shape({name}_instance *instance, const {name}_shape *shape, const void *const *inputs,
    void *const *outputs);
"""
