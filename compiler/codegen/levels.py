"""Code for several levels of processors in one library: what each adds, its objects, and how ``create`` chooses.

    write_levels(spec, work, toolchain) -> one object a level, whose only names are its own main and what it calls
    dispatch_text(spec, parameters)     -> the C of the choice, which is made once, before the first instance
    form_text(spec)                     -> the C of the weights that each level makes of those in the file

The last level that the processor and the system grant is taken; the environment's HALOTILE_LEVEL names another.
"""

from __future__ import annotations

from pathlib import Path

from .archive import localise
from .names import MAIN, SHAPES, literal
from .processor import processor_checks
from .spec import LibrarySpec, suffix
from .toolchain import Toolchain

# weak in every object of kernels; the runtime's definitions replace them
_HOOKS = ("__TVMBackendParallelLaunch", "__TVMBackendAllocWorkspace", "__TVMBackendFreeWorkspace")


def write_levels(spec: LibrarySpec, work: Path, toolchain: Toolchain) -> list[str]:
    """Joins the objects of each level to one, in ``work``; kernels of two levels may have one name. Gives the files."""
    made = []
    for number, level in enumerate(spec.all_levels):
        parts = []
        for i, code in enumerate((level.object_bytes, *level.kernel_objects)):
            parts.append(f"level{number}_{i}.o")
            (work / parts[-1]).write_bytes(code)
        joined = f"level{number}.o"
        arguments = ["-r", "-nostdlib", *parts, "-o", joined]
        toolchain.run(arguments, work, f"joining the kernels for {level.target.id}")
        localise(work / joined, (MAIN + suffix(number), SHAPES + suffix(number), *_HOOKS))
        for part in parts:
            (work / part).unlink()
        made.append(joined)
    return made


def dispatch_text(spec: LibrarySpec, parameters: str) -> str:
    """``level()``, the number of the level that is taken or -1, ``processor_fits``, and under the names of a library
    without levels the functions of the level that is taken. ``parameters`` are main's types."""
    levels = spec.all_levels
    numbers = range(len(levels))
    checks = processor_checks([(f"fits_{i}", level.target, level.matrix_unit) for i, level in enumerate(levels)])
    mains = "".join(f"int32_t {MAIN}{suffix(i)}({parameters});\n" for i in numbers)
    kinds = [(MAIN, parameters, "main")]
    if spec.symbols:
        mains += "".join(f"int32_t {SHAPES}{suffix(i)}({_SIZES});\n" for i in numbers)
        kinds.append((SHAPES, _SIZES, "shapes"))
    tables = "".join(
        f"static int32_t (*const {kind}_of_level[])({types}) = {{{', '.join(name + suffix(i) for i in numbers)}}};\n"
        for name, types, kind in kinds
    )
    return mains + _DISPATCH.format(
        checks=checks,
        count=len(levels),
        names=", ".join(literal(level.target.id) for level in levels),
        fits=", ".join(f"fits_{i}" for i in numbers),
        tables=tables,
    ) + (_SHAPES if spec.symbols else "")  # fmt: skip


def form_text(spec: LibrarySpec) -> str:
    """``take_weights`` and ``drop_weights``, behind the weights' declaration."""
    tables, forms = [], []
    for number, form in enumerate(level.form for level in spec.all_levels):
        steps = []
        for i, step in enumerate(form.steps):
            names, wide = [], "int64_t"
            for values, what, kind in ((step.dims, "dims", wide), (step.strides, "strides", wide),
                                       (step.factors, "by", "double")):  # fmt: skip
                names.append(f"{what}_{number}_{i}" if values else "0")
                if values:
                    texts = ", ".join(v.hex() if isinstance(v, float) else str(v) for v in values)
                    tables.append(f"static const {kind} {names[-1]}[] = {{{texts}}};\n")
            starts = -1 if step.starts is None else step.starts
            numbers = f"{step.of}, {step.to}, {step.source}, {step.target}, {starts}, {len(step.dims)}"
            steps.append(f"    {{{numbers}, {', '.join(names)}}},\n")
        if steps:
            tables.append(f"static const struct halotile_step steps_{number}[] = {{\n{''.join(steps)}}};\n")
        own = f"steps_{number}" if steps else "0"
        forms.append(f"    {{{form.bytes}UL, {form.first}UL, {form.second}UL, {len(steps)}, {own}}},\n")
    weights = "halotile_weights" if spec.weight_bytes else "no_weights"
    return "".join(tables) + _FORMS.format(forms="".join(forms), weights=weights)


_FORMS = """
static const struct halotile_form form_of_level[] = {{
{forms}}};

static int take_weights(void) {{ return halotile_form_take(&form_of_level[level()], {weights}); }}

static void drop_weights(void) {{ halotile_form_drop(&form_of_level[level()]); }}
"""

_SIZES = "const int64_t *, int64_t *"

_DISPATCH = """
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "forms.h"

{checks}
static const char *const level_names[] = {{{names}}};
static int (*const fits_level[])(void) = {{{fits}}};
{tables}
static int chosen_level(void) {{
    const char *wanted = getenv("HALOTILE_LEVEL");
    for (int i = 0; wanted && i < {count}; ++i) {{
        if (strcmp(wanted, level_names[i]) == 0) {{
            return fits_level[i]() ? i : -1;
        }}
    }}
    for (int i = {count} - 1; i >= 0; --i) {{
        if (fits_level[i]()) {{
            return i;
        }}
    }}
    return -1;
}}

/* The level that is taken, or -1 for none: chosen once, as the processor does not change. */
static int level(void) {{
    static atomic_int known; /* its number and 2 */
    int found = atomic_load_explicit(&known, memory_order_relaxed);
    if (!found) {{
        found = chosen_level() + 2;
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }}
    return found - 2;
}}

/* The same, of a library that nothing runs of: the least. */
static int told_level(void) {{ return level() < 0 ? 0 : level(); }}

static int processor_fits(void) {{ return level() >= 0; }}
"""

_SHAPES = """
static int32_t shapes_of_taken(const int64_t *symbols, int64_t *facts) {
    return shapes_of_level[told_level()](symbols, facts);
}
"""
