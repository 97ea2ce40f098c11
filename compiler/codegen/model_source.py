"""The C file that ties the runtime, the kernels and the header together under the model's name.

    model_text(spec, fingerprint) -> text of generated.c
"""

from __future__ import annotations

from ..spec import TensorSpec
from .levels import dispatch_text, form_text
from .names import MAIN, literal
from .processor import processor_check
from .shapes_model import open_description, open_functions, open_table
from .spec import ABI, ABI_OF_SHAPES, LibrarySpec
from .stream_model import stream_functions, stream_table
from .transfers import scratchpad_text, transfer_text

NO_MEMORY = "not enough memory for the arena, or for the weights in the form of this level of processors"


def _size(value: int) -> str:
    return f"{value}UL"


def model_text(spec: LibrarySpec, fingerprint: str) -> str:
    """The C file that ties the runtime, the kernels and the header together under the model's name."""
    name = spec.identifier
    inputs, outputs = len(spec.inputs), len(spec.outputs)
    pad = bool(spec.scratchpad_bytes)
    parameters = ["void *"] * (inputs + outputs) + ["const void *", "void *"]
    parameters += ["const void *"] * bool(spec.levels) + ["void *"] * pad
    parameters += ["const int64_t *"] * 2 if spec.symbols else []
    arguments = ", ".join(
        [f"(void *)inputs[{i}]" for i in range(inputs)]
        + [f"outputs[{i}]" for i in range(outputs)]
        + ["weights", "arena"]
        + ["halotile_made"] * bool(spec.levels)
        + ["scratchpad_of(arena)"] * pad
    )
    weights = "halotile_weights" if spec.weight_bytes else "no_weights"
    planned, workspace = _size(spec.planned_bytes), _size(spec.workspace_bytes)
    own = _open_parts(spec, arguments) if spec.symbols else _fixed_parts(spec, arguments, planned, workspace)
    types = ", ".join(parameters)
    targets = [level.target.id for level in spec.all_levels]
    described = "".join(
        _DESCRIPTION.format(
            name=name, abi=own["abi"], text=literal(spec.name), version=literal(spec.version), target=literal(target),
            fingerprint=literal(fingerprint), inputs=inputs, outputs=outputs, weight_bytes=_size(spec.weight_bytes),
            sizes=own["sizes"], max_threads=spec.max_threads, default_threads=spec.default_threads,
            symbols=own["symbols"],
        )
        for target in targets
    )
    if spec.levels:
        own["words"] = f'code == HALOTILE_ERROR_MEMORY ? "{NO_MEMORY}" : {own["words"]}'
    return _MODEL.format(
        name=name,
        **own,
        weights=weights,
        kernels=dispatch_text(spec, types) if spec.levels else f"int32_t {MAIN}({types});\n",
        described=described,
        count=len(targets),
        place="told_level()" if spec.levels else "0",
        processor_check=("" if spec.levels else processor_check(spec.target, spec.matrix_unit))
        + (scratchpad_text(name, spec.scratchpad_bytes, spec.scratchpad_offset) if pad else ""),
        declare_weights=(
            "extern const unsigned char halotile_weights[];"
            if spec.weight_bytes
            else "static const unsigned char no_weights[64];"
        ),
        inputs=inputs,
        outputs=outputs,
        planned="0" if spec.symbols else planned,
        workspace="0" if spec.symbols else workspace,
        max_threads=spec.max_threads,
        default_threads=spec.default_threads,
        timers=_size(spec.timers),
        flush_denormals=int(spec.flush_denormals),
        forms="take_weights, drop_weights" if spec.levels else "0, 0",
        form_text=form_text(spec) if spec.levels else "",
    ) + (_MODEL_TIMERS.format(name=name) if spec.timers else "") + (
        transfer_text(name) if pad else ""
    ) + (stream_functions(spec) if spec.stream else "")


def _fixed_parts(spec: LibrarySpec, arguments: str, planned: str, workspace: str) -> dict[str, str]:
    """What of the C file depends on shapes, where they are fixed."""
    name = spec.identifier
    return {
        "calls": _CALL.format(arguments=arguments, main="main_of_level[level()]" if spec.levels else MAIN),
        "call": "call",
        "open": "0",
        "tensors": _tensor_table(name, "inputs", spec.inputs) + _tensor_table(name, "outputs", spec.outputs)
        + (stream_table(spec) if spec.stream else ""),
        "abi": str(ABI),
        "sizes": f"{planned}, {workspace}, ",
        "symbols": "",
        "functions": _FUNCTIONS.format(name=name),
        "words": "halotile_stream_text(code)" if spec.stream else "halotile_error_text(code)",
    }


def _open_parts(spec: LibrarySpec, arguments: str) -> dict[str, str]:
    """The same, where every run chooses sizes."""
    return {
        "calls": open_table(spec, arguments),
        "call": "0",
        "open": "&open_shapes",
        "tensors": open_description(spec),
        "abi": str(ABI_OF_SHAPES),
        "sizes": "",
        "symbols": f"    {len(spec.symbols)}, symbols_table,\n",
        "functions": open_functions(spec),
        "words": "code == HALOTILE_ERROR_SHAPE ? halotile_shape_text() : halotile_error_text(code)",
    }


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

{kernels}{declare_weights}

{processor_check}{form_text}{calls}
const struct halotile_model halotile_model = {{
    {call}, processor_fits, {weights}, {inputs}, {outputs}, {planned}, {workspace}, {max_threads}, {default_threads},
    {timers}, {flush_denormals}, {open}, {forms}
}};

{tensors}
static const {name}_description descriptions[{count}] = {{
{described}}};

const {name}_description *{name}_describe(void) {{ return &descriptions[{place}]; }}

{functions}
int {name}_threads(const {name}_instance *instance) {{
    return halotile_threads((const struct halotile_instance *)instance);
}}

void {name}_destroy({name}_instance *instance) {{ halotile_destroy((struct halotile_instance *)instance); }}

const char *{name}_error_text(int code) {{ return {words}; }}
"""

_DESCRIPTION = """    {{
        {abi}, {text}, {version}, {target}, {fingerprint},
        {inputs}, inputs_table, {outputs}, outputs_table,
        {weight_bytes}, {sizes}{max_threads}, {default_threads},
{symbols}    }},
"""

_CALL = """
static int32_t call(const void *const *inputs, void *const *outputs, const void *weights, void *arena) {{
    (void)inputs, (void)outputs;
    return {main}({arguments});
}}
"""

_FUNCTIONS = """size_t {name}_arena_bytes(int threads) {{ return halotile_arena_bytes(threads); }}

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
"""

_MODEL_TIMERS = """
int {name}_kernel_seconds(const {name}_instance *instance, double *seconds) {{
    return halotile_kernel_seconds((const struct halotile_instance *)instance, seconds);
}}
"""
