"""onnx.backend.test on halotile.onnx_backend: ONNX's own suite, with its own comparisons, through its own interface.

Every input is one of run time, as the suite hands it over. ``python -m halotile.benchmarks.backend_tests --table
SUPPORT.md`` writes the table; ``--part`` and ``--merge`` do it in pieces. The large models of the suite are its "light"
ones, whose weights are constant; their expected outputs come from ONNX's reference evaluator.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import unittest
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .case_runner import CRASH, PASS, REFUSED, WRONG, CaseOutcome, add_options, run_parts
from .node_tests import ENGINES

if TYPE_CHECKING:
    import numpy as np

LEFT_OUT, DIFFERS = "left out", "differs"
#: Tests that ask for something else than other engines do, or than float32 can tell.
KNOWN = {
    "test_dft_inverse_cpu": "zeros that the test expects as 2e-7, within 1e-7: ours are nearer to zero",
    "test_dft_inverse_opset19_cpu": "zeros that the test expects as 2e-7, within 1e-7: ours are nearer to zero",
    "test_maxunpool_export_with_output_shape_cpu": "places count in the whole output, as in ONNX Runtime",
    **dict.fromkeys((f"{name}_cpu" for name in ENGINES), "the last pixel is aligned, as in ONNX Runtime and PyTorch"),
}
KINDS = {
    "NodeModel": "operators",
    "SimpleModel": "small graphs",
    "PyTorchConvertedModel": "layers that PyTorch wrote",
    "PyTorchOperatorModel": "operators that PyTorch wrote",
    "RealModel": "networks",
}


@dataclass(frozen=True)
class SuiteCase:
    """A test of the suite; ``refusals`` gets what the backend refused during a run."""

    name: str
    kind: str
    function: Callable[..., object]
    refusals: list[str]


def load_cases() -> dict[str, SuiteCase]:
    """All tests for the CPU by name (collecting them takes 20 seconds)."""
    from halotile.onnx_backend import HalotileBackend, HalotileBackendRep, Refused
    from onnx.backend.test.runner import Runner

    refusals: list[str] = []

    class Rep(HalotileBackendRep):
        def run(self, inputs: object, **more: object) -> tuple[np.ndarray, ...]:
            try:
                return super().run(inputs, **more)
            except Refused as error:
                refusals.append(error.message)
                raise

    class RecordedBackend(HalotileBackend):
        """The backend, which also writes down what it refuses: the suite passes over that in silence."""

        @classmethod
        def is_compatible(cls, model: object, device: str = "CPU", **_more: object) -> bool:
            return True  # else the suite would not say why it skips a model

        @classmethod
        def prepare(cls, model: object, device: str = "CPU", **more: object) -> HalotileBackendRep:
            try:
                return Rep(super().prepare(model, device, **more).session)
            except Refused as error:
                refusals.append(error.message)
                raise

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        items = Runner(RecordedBackend, __name__)._test_items
    return {
        name: SuiteCase(name, kind, item.func, refusals)
        for kind, tests in items.items()
        for name, item in tests.items()
        if name.endswith("_cpu")
    }


def operators_of(case: SuiteCase) -> tuple[str, ...]:
    """The kind of the test, by which the table counts."""
    return (KINDS.get(case.kind, case.kind),)


def run_case(case: SuiteCase) -> CaseOutcome:
    """Runs one test of the suite."""
    from halotile.errors import HalotileError, InternalError

    case.refusals.clear()
    started = time.monotonic()
    verdict, detail = PASS, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.function(unittest.TestCase())
    except unittest.SkipTest as error:
        verdict, detail = LEFT_OUT, str(error)
    except AssertionError as error:
        verdict, detail = WRONG, " ".join(str(error).split())
    except InternalError as error:
        verdict, detail = CRASH, str(error)
    except HalotileError as error:  # any other of our refusals
        verdict, detail = REFUSED, error.message
    except Exception as error:
        verdict, detail = CRASH, f"{type(error).__name__}: {' '.join(str(error).split())}"
    if case.refusals:
        verdict, detail = REFUSED, case.refusals[0]
    if verdict == WRONG and case.name in KNOWN:
        verdict = DIFFERS
    return CaseOutcome(case.name, operators_of(case), verdict, detail[:400], round(time.monotonic() - started, 2))


def table(outcomes: list[CaseOutcome]) -> str:
    """The result of the suite as Markdown."""
    import onnx

    counts = Counter(o.verdict for o in outcomes)
    lines = [
        "## ONNX's backend tests",
        "",
        "Generated by `python -m halotile.benchmarks.backend_tests --table SUPPORT.md`; do not edit.",
        "",
        f"`onnx.backend.test` of ONNX {onnx.__version__} on `halotile.onnx_backend`, with every input at run time and "
        f"the suite's own comparison: of {len(outcomes)} tests {counts[PASS]} pass, {counts[REFUSED]} are refused "
        f"with an error, {counts[DIFFERS]} differ for a reason, {counts[WRONG]} are wrong, {counts[CRASH]} "
        f"crash, {counts[LEFT_OUT]} are left out by the suite.",
        "",
        "| tests of | pass | refused | differ | wrong or crash |",
        "|---|---|---|---|---|",
    ]
    for kind in KINDS.values():
        per = Counter(o.verdict for o in outcomes if o.operators == (kind,))
        lines.append(
            f"| {kind} | {per[PASS] or ''} | {per[REFUSED] or ''} | {per[DIFFERS] or ''} "
            f"| {per[WRONG] + per[CRASH] or ''} |"
        )
    reasons = Counter(_reason(o.detail) for o in outcomes if o.verdict == REFUSED)
    lines += ["", "| refused, because | tests |", "|---|---|"]
    lines += [f"| {reason} | {count} |" for reason, count in sorted(reasons.items(), key=lambda r: (-r[1], r[0]))]
    odd = [o for o in outcomes if o.verdict in (DIFFERS, WRONG, CRASH)]
    if odd:
        lines += ["", "| differs | how |", "|---|---|"]
        lines += [f"| `{o.name}` | {KNOWN.get(o.name, o.detail[:160]).replace('|', '/')} |" for o in odd]
    return "\n".join(lines) + "\n"


def _reason(detail: str) -> str:
    """The reason alone, alike for all tests that are refused for it."""
    text = detail.removeprefix("the model can't be compiled: ").splitlines()[0]
    text = text.split("): ", 1)[-1] if "): " in text else text
    text = re.sub(r"(input|output) '[^']*'", r"an \1", text.split(": --fix ")[0].split(": it follows from ")[0])
    return text[:160].replace("|", "/")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="backend_tests", description=__doc__.splitlines()[0] if __doc__ else None
    )
    add_options(parser)
    return run_parts("backend_tests", load_cases, table, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
