"""The ONNX node tests: each must pass or be refused with a clear error, never give a wrong answer.

Every test of the onnx package whose inputs and outputs are tensors is run with all inputs but the first frozen to
constants. Where engines agree on another answer than the test (``ENGINES``), theirs is expected.
``python -m halotile.benchmarks.node_tests`` prints the counts and writes the support table to SUPPORT.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .case_runner import CRASH, PASS, REFUSED, WRONG, CaseOutcome, add_options, run_parts
from .open_cases import has_open_dims, opened

if TYPE_CHECKING:
    import onnx

    from ..targets.plain import Json

NOT_TENSORS = "not tensors"
FIXED = "fixed"  # no dim of an input can be open
#: Corners aligned by a scale that shrinks to a fraction of a pixel: ONNX aligns the length before it is rounded, ONNX
#: Runtime and PyTorch the last pixel that there is.
ENGINES = (
    "test_resize_downsample_scales_cubic_align_corners",
    "test_resize_downsample_scales_linear_align_corners",
)


def load_cases() -> Json:
    """All node test cases by name (building them takes a few seconds)."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


def has_only_tensors(case: Any) -> bool:
    graph = case.model.graph
    for info in [*graph.input, *graph.output]:
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type" or info.type.tensor_type.elem_type == 8:  # 8 is a string
            return False
    return True


def frozen(case: Any, running: int = 1) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[np.ndarray]]:
    """The model with all inputs but the first ``running`` as initialisers, the inputs left, and what is expected."""
    import onnx
    from onnx import numpy_helper

    inputs, outputs = case.data_sets[0]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    names = [i.name for i in graph.input]
    arrays = [i if isinstance(i, np.ndarray) else numpy_helper.to_array(i) for i in map(_tensor, inputs)]
    given: dict[str, np.ndarray] = {}
    for position, (name, array) in enumerate(zip(names, arrays)):
        if position < running:
            given[name] = array
            shape = graph.input[position].type.tensor_type.shape
            del shape.dim[:]
            for length in array.shape:
                shape.dim.add().dim_value = length
            graph.input[position].type.tensor_type.shape.CopyFrom(shape)
        else:
            source = inputs[position]
            tensor = (
                numpy_helper.from_array(array, name) if not isinstance(source, onnx.TensorProto) else source
            )
            tensor.name = name
            graph.initializer.append(tensor)
    if model.ir_version >= 4:  # before, every initialiser is an input as well
        del graph.input[running:]
    return (
        model,
        given,
        [o if isinstance(o, np.ndarray) else numpy_helper.to_array(o) for o in map(_tensor, outputs)],
    )


def _tensor(value: object) -> onnx.TensorProto | np.ndarray:
    import onnx

    return value if isinstance(value, onnx.TensorProto) else np.asarray(value)


def operators_of(case: Any) -> tuple[str, ...]:
    """The operators of a case's model."""
    return tuple(sorted({n.op_type for n in case.model.graph.node}))


def run_case(case: Any, backend: str, running: int = 1, open_dims: bool = False) -> CaseOutcome:
    """Imports, compiles and runs one test, and compares with what ONNX expects. ``open_dims``: dims of inputs are open
    where the import accepts it, and the model is built once for all sizes."""
    from halotile.errors import HalotileError, InternalError

    operators = operators_of(case)
    started = time.monotonic()

    def outcome(verdict: str, detail: str = "") -> CaseOutcome:
        return CaseOutcome(case.name, operators, verdict, detail[:400], round(time.monotonic() - started, 2))

    if not has_only_tensors(case):
        return outcome(NOT_TENSORS)
    try:
        model, given, expected = frozen(case, running)
        if case.name in ENGINES:
            expected = _engine(model, given)
        if open_dims:
            model, given, objection = opened(model, given)
            if not has_open_dims(model):
                return outcome(FIXED, objection or "no input has dims")
        results = _given_back(BACKENDS[backend](model, given), [o.name for o in model.graph.output], expected)
    except InternalError as error:
        return outcome(CRASH, str(error))
    except HalotileError as error:
        text = " ".join(str(error).split())
        defect = "Error:" in text or "it can't be converted for operands" in text
        return outcome(CRASH if defect else REFUSED, text)
    except Exception as error:  # anything else is our own defect
        return outcome(CRASH, f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}")
    if len(results) != len(expected):
        return outcome(WRONG, f"{len(results)} outputs instead of {len(expected)}")
    for index, (result, wanted) in enumerate(zip(results, expected)):
        difference = compare(result, wanted, case.rtol, case.atol)
        if difference:
            return outcome(WRONG, f"output {index}: {difference}")
    return outcome(PASS)


def _given_back(found: dict[str, np.ndarray], names: list[str], expected: list[np.ndarray]) -> list[np.ndarray]:
    """The model's own outputs, without the room that follows what is there."""
    from halotile.compiler.verify import there

    wanted = dict(zip(names, expected))
    return [there(found, name, wanted) for name in names]


def compare(result: np.ndarray, wanted: np.ndarray, rtol: float, atol: float) -> str:
    """Empty when the two agree, else how they differ."""
    if result.shape != wanted.shape:
        return f"shape {list(result.shape)} instead of {list(wanted.shape)}"
    if result.dtype != wanted.dtype:
        return f"dtype {result.dtype} instead of {wanted.dtype}"
    if wanted.dtype.name in ("bfloat16", "float16"):
        rtol = max(rtol, 2e-2 if wanted.dtype.name == "bfloat16" else 2e-3)
    if "float" not in wanted.dtype.name:
        return "" if np.array_equal(result, wanted) else f"{int((result != wanted).sum())} elements differ"
    a, b = result.astype("float64"), wanted.astype("float64")
    if wanted.dtype.name == "float32" and b.size:
        # A sum that cancels is only known to a rounding of its largest terms, in what ONNX expects as well.
        with np.errstate(invalid="ignore"):
            largest = np.abs(np.where(np.isfinite(b), b, 0)).max()
        atol = max(atol, float(np.finfo("float32").eps) * largest)
    if np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        return f"largest error {np.nanmax(np.abs(a - b)) if a.size else 0:.3g}"


def _engine(model: object, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime answers."""
    from halotile.compiler.verify import Reference

    return list(Reference(model)(given, 0).values())


def _te(model: object, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    from halotile.compiler.frontend import import_model
    from halotile.schedules.operators.reference import compile_reference

    imported = import_model(model)
    results = compile_reference(imported.module)(*(given[i.name] for i in imported.inputs))
    return {o.name: r for o, r in zip(imported.outputs, results)}


def _aot(model: object, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    import halotile

    compiled = halotile.compile(model)
    return compiled({spec.name: given[spec.name] for spec in compiled.inputs})


BACKENDS: dict[str, Callable[[onnx.ModelProto, dict[str, np.ndarray]], dict[str, np.ndarray]]] = {"te": _te,
"aot": _aot}


# ---------------------------------------------------------------------- the table


def table(outcomes: list[CaseOutcome]) -> str:
    """The support table as Markdown."""
    import onnx

    counts = Counter(o.verdict for o in outcomes)
    tested = [o for o in outcomes if o.verdict != NOT_TENSORS]
    lines = [
        "# Supported operators",
        "",
        "Generated by `python -m halotile.benchmarks.node_tests --table SUPPORT.md`; do not edit.",
        "",
        f"ONNX {onnx.__version__} has {len(tested)} node tests on tensors. With all inputs but the first frozen to "
        f"constants, "
        f"{counts[PASS]} pass, {counts[REFUSED]} are refused with an error, {counts[WRONG]} give a wrong answer, "
        f"{counts[CRASH]} crash. {len(ENGINES)} tests of Resize, whose corners ONNX aligns otherwise than ONNX Runtime "
        "and PyTorch do, are compared with ONNX Runtime.",
        "",
        "| operator | pass | refused | wrong or crash | why refused |",
        "|---|---|---|---|---|",
    ]
    rows: dict[str, list[CaseOutcome]] = {}
    for o in tested:
        rows.setdefault(_family(o), []).append(o)
    for family in sorted(rows, key=str.lower):
        group = rows[family]
        per = Counter(o.verdict for o in group)
        reasons = sorted({_reason(o.detail) for o in group if o.verdict == REFUSED})
        lines.append(
            f"| {family} | {per[PASS] or ''} | {per[REFUSED] or ''} | {per[WRONG] + per[CRASH] or ''} "
            f"| {'; '.join(reasons[:3]).replace('|', '/')} |"
        )
    return "\n".join(lines) + "\n"


def _family(outcome: CaseOutcome) -> str:
    if len(outcome.operators) == 1:
        return outcome.operators[0]
    return f"{outcome.name.removeprefix('test_').split('_')[0]} (as a graph of other operators)"


def _reason(detail: str) -> str:
    """The reason alone, without the node it was found at and the flag that would mend this model."""
    text = detail.removeprefix("the model can't be compiled: ").split(" (end the model")[0]
    text = text.split("): ", 1)[-1] if "): " in text else text
    return text.split(": --fix ")[0].split(": it follows from ")[0][:160]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="node_tests", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="aot")
    parser.add_argument(
        "--running",
        type=int,
        help="how many inputs stay inputs: 1, or all with --open; 0 leaves everything to constant folding",
    )
    parser.add_argument(
        "--open", action="store_true", help="open the dims of all inputs, with which the model is built once"
    )
    add_options(parser)
    options = parser.parse_args(arguments)
    if options.open:
        os.environ["HALOTILE_OPEN"] = "1"
    running = options.running if options.running is not None else sys.maxsize if options.open else 1
    return run_parts("node_tests", load_cases, table, options, (options.backend, running, options.open))


if __name__ == "__main__":
    sys.exit(main())
