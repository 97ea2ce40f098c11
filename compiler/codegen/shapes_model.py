"""The C file behind the header of a model with open shapes: its tables, and its functions by the runtime's shapes.c."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .conditions import condition_text
from .names import MAIN, SHAPES, literal, members

if TYPE_CHECKING:
    from ..spec import Symbol, TensorSpec
    from .spec import LibrarySpec


def open_table(spec: LibrarySpec, arguments: str) -> str:
    """What the runtime knows of the model's shapes. ``arguments`` of main, up to those that shapes add."""
    rows = "".join(
        f"    {{{literal(s.name)}, {s.least}, {s.most}, {s.multiple}, {literal(s.must_be)}}},\n" for s in spec.symbols
    )
    conditions = f"{len(spec.conditions)}, open_conditions, side_of" if spec.conditions else "0, 0, 0"
    return _TABLE.format(
        rows=rows, arguments=arguments, symbols=len(spec.symbols), dims=spec.dimensions, facts=spec.facts,
        texts=condition_text(spec.conditions, spec.symbols), conditions=conditions,
        declared="" if spec.levels else f"int32_t {SHAPES}(const int64_t *symbols, int64_t *facts);\n",
        main="main_of_level[level()]" if spec.levels else MAIN, shapes="shapes_of_taken" if spec.levels else SHAPES,
    )  # fmt: skip


def open_description(spec: LibrarySpec) -> str:
    """The tables of the public description, up to the description itself."""
    name = spec.identifier
    rows = "".join(
        f"    {{{literal(s.name)}, {s.least}, {s.most}, {s.multiple}, {s.typical}, {literal(s.allowed)}, {_why(s)}}},\n"
        for s in spec.symbols
    )
    return (
        _tensors(name, "inputs", spec.inputs)
        + _tensors(name, "outputs", spec.outputs)
        + f"static const {name}_symbol symbols_table[] = {{\n{rows}}};\n"
    )


def open_functions(spec: LibrarySpec) -> str:
    """The functions that take a shape."""
    name = spec.identifier
    copies = "".join(
        f"    symbols[{i}] = shape->{member};\n" for i, member in enumerate(members([s.name for s in spec.symbols]))
    )
    tensors = "".join(_of_tensor(name, spec.facts, len(spec.symbols), *place) for place in _places(spec))
    text = _FUNCTIONS.format(
        name=name, copies=copies, symbols=len(spec.symbols), facts=spec.facts, dims=spec.dimensions
    )
    return text + tensors


def _why(symbol: Symbol) -> str:
    return literal("; ".join(symbol.why))


def _places(spec: LibrarySpec) -> Iterator[tuple[str, int, TensorSpec, int]]:
    """(kind, number, tensor, where its dimensions begin among the facts) of every input and output."""
    at = 2
    for kind, group in (("input", spec.inputs), ("output", spec.outputs)):
        for i, tensor in enumerate(group):
            yield kind, i, tensor, at
            at += len(tensor.shape)


def _of_tensor(name: str, facts: int, symbols: int, kind: str, index: int, tensor: TensorSpec, at: int) -> str:
    return _OF_TENSOR.format(
        name=name, kind=kind, index=index, rank=len(tensor.shape), at=at, bytes=tensor.itemsize, facts=facts,
        symbols=symbols,
    )  # fmt: skip


def _tensors(name: str, kind: str, tensors: tuple[TensorSpec, ...]) -> str:
    dims = "".join(
        f"static const char *const {kind}_{i}[] = {{{', '.join(literal(str(d)) for d in t.shape) or '0'}}};\n"
        for i, t in enumerate(tensors)
    )
    rows = "".join(
        f"    {{{literal(t.name)}, {literal(t.dtype)}, {len(t.shape)}, {kind}_{i}, {t.itemsize}}},\n"
        for i, t in enumerate(tensors)
    )
    return f"{dims}static const {name}_tensor {kind}_table[] = {{\n{rows or '    {0, 0, 0, 0, 0},'}\n}};\n"


_TABLE = """#include "shapes.h"

{declared}
static int32_t call_open(const void *const *inputs, void *const *outputs, const void *weights, void *arena,
                         const int64_t *symbols, const int64_t *facts) {{
    (void)inputs, (void)outputs;
    return {main}({arguments}, symbols, facts);
}}

static const struct halotile_symbol open_symbols[] = {{
{rows}}};
{texts}
static const struct halotile_open open_shapes = {{
    {symbols}, {dims}, {facts}, open_symbols, {shapes}, call_open,
    {conditions},
}};
"""

_FUNCTIONS = """
static int facts_of(const {name}_shape *shape, int64_t *symbols, int64_t *facts) {{
    if (!shape) {{
        return HALOTILE_ERROR_ARGUMENT;
    }}
{copies}    return halotile_shape_facts(symbols, facts);
}}

static int dims_of(const {name}_shape *shape, size_t first, size_t count, int64_t *dims) {{
    int64_t symbols[{symbols}], facts[{facts}];
    int code = dims ? facts_of(shape, symbols, facts) : HALOTILE_ERROR_ARGUMENT;
    for (size_t i = 0; code == HALOTILE_OK && i < count; ++i) {{
        dims[i] = facts[first + i];
    }}
    return code;
}}

int {name}_shape_check(const {name}_shape *shape) {{
    int64_t symbols[{symbols}], facts[{facts}];
    return facts_of(shape, symbols, facts);
}}

int {name}_shape_dims(const {name}_shape *shape, int64_t *dims) {{ return dims_of(shape, 2, {dims}, dims); }}

size_t {name}_arena_bytes_for(const {name}_shape *shape, int threads) {{
    int64_t symbols[{symbols}], facts[{facts}];
    return facts_of(shape, symbols, facts) == HALOTILE_OK ? halotile_arena_bytes_for(facts, threads) : 0;
}}

static int make(int threads, const {name}_shape *most, const struct halotile_memory *arena,
                {name}_instance **instance) {{
    int64_t symbols[{symbols}], facts[{facts}];
    struct halotile_instance *made = 0;
    if (!instance) {{
        return HALOTILE_ERROR_ARGUMENT;
    }}
    int code = facts_of(most, symbols, facts);
    if (code == HALOTILE_OK) {{
        code = halotile_create_for(threads, facts, arena, &made);
    }}
    *instance = ({name}_instance *)made;
    return code;
}}

int {name}_create_for(int threads, const {name}_shape *most, {name}_instance **instance) {{
    return make(threads, most, 0, instance);
}}

int {name}_create_in_for(int threads, const {name}_shape *most, void *arena, size_t arena_bytes,
                         {name}_instance **instance) {{
    struct halotile_memory memory = {{arena, arena_bytes}};
    return make(threads, most, &memory, instance);
}}

int {name}_run_shape({name}_instance *instance, const {name}_shape *shape, const void *const *inputs,
                     void *const *outputs) {{
    int64_t symbols[{symbols}];
    if (!shape) {{
        return HALOTILE_ERROR_ARGUMENT;
    }}
{copies}    return halotile_run_shape((struct halotile_instance *)instance, symbols, inputs, outputs);
}}
"""

_OF_TENSOR = """
int {name}_{kind}_{index}_shape(const {name}_shape *shape, int64_t *dims) {{
    return dims_of(shape, {at}, {rank}, dims);
}}

size_t {name}_{kind}_{index}_bytes_for(const {name}_shape *shape) {{
    int64_t symbols[{symbols}], facts[{facts}];
    int known = facts_of(shape, symbols, facts) == HALOTILE_OK;
    return known ? halotile_tensor_bytes(facts + {at}, {rank}, {bytes}) : 0;
}}
"""
