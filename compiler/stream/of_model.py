"""What a model that streams tells of itself: its plan, from the manifest, its shapes, and whether it is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RunError
from ..spec import TensorSpec
from ..verify import Verification, verify
from .words import StreamPlan

if TYPE_CHECKING:
    import onnx

    from ...targets.plain import JsonView
    from ..given import ArraysGiven


def plan_in(manifest: JsonView) -> StreamPlan | None:
    """The plan of a library that streams; None of any other."""
    plain = (manifest.get("report") or {}).get("stream")
    return None if plain is None else StreamPlan.of(plain)


def specs_in(plan: StreamPlan, specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """Of the inputs or outputs of a step those of the network, as high and as wide as images are."""
    ports = {p.name: p for p in (*plan.inputs, *plan.outputs)}
    own = {s.input for s in plan.states} | {s.output for s in plan.states} | {f.name for f in plan.feeds}
    own |= {name for s in plan.statistics for name in (*s.inputs, *s.outputs)}
    found = []
    for spec in specs if plan.columns is None else map(plan.columns.whole, specs):
        if spec.name in ports:
            port = ports[spec.name]
            shape = tuple(port.text if a == port.axis else n for a, n in enumerate(spec.shape))
            found.append(replace(spec, shape=shape))
        elif spec.name not in own:
            found.append(spec)
    return tuple(found)


def specs_at(plan: StreamPlan, specs: tuple[TensorSpec, ...], rows: int) -> tuple[TensorSpec, ...]:
    """The network's inputs or outputs for an image of that height."""
    ports = {p.name: p for p in (*plan.inputs, *plan.outputs)}

    def at(spec: TensorSpec) -> TensorSpec:
        port = ports.get(spec.name)
        if port is None:
            return spec
        shape = [port.height.at(rows) if a == port.axis else n for a, n in enumerate(spec.shape)]
        return replace(spec, shape=tuple(shape))

    return tuple(map(at, specs))


def heights_to_compare(plan: StreamPlan) -> int:
    """A height at which borders, and steps without any, are met: three steps and a half."""
    rows = max(3 * plan.rows + plan.rows // 2 + 1, plan.least)
    return -(-rows // plan.multiple) * plan.multiple


def verify_stream(
    model: Any, plan: StreamPlan, source: Path | onnx.ModelProto, inputs: Mapping[str, ArraysGiven] | None,
    shape: Mapping[str, int] | None, **options: Any,
) -> Verification:  # fmt: skip
    """Compares whole images with ONNX Runtime: as ``inputs``, or of the height in ``shape``, or of a few steps."""
    rows = heights_to_compare(plan)
    for port in plan.inputs:
        if inputs and port.name in inputs:
            given = inputs[port.name].shape[port.axis]
            rows = given * port.height.period // port.height.steps
    for name, asked in (shape or {}).items():
        if name != plan.symbol:
            raise RunError(f"the model has no open dimension {name!r}; it has {plan.symbol!r}")
        rows = asked
    if refusal := plan.refusal(rows):
        raise RunError(refusal)
    found = verify(model, source, specs_at(plan, model.inputs, rows), inputs, dropped=None, **options)
    return replace(found, sizes={plan.symbol: rows})
