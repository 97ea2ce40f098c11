"""Layers in float16 within an error: what they are expected to move the outputs by, and what is done where it is more.

    bounded("m.onnx", options, samples, error=0.01) -> HalfError (schedules/words/half_error.py)

ONNX Runtime computes the model with all layers in float16 as rounding.py rounds them, and without. Where outputs are
expected to keep the error, nothing changes. Else transforms are at most F(2x2, 3x3), whose error is a bit more than
half of that of F(4x2). If that is not enough, layers stay in float32, those of the fewest multiply-adds first, since
each adds about as much to the error; and all do where a third of the multiply-adds is too little. ``--precision auto``
knows better which layers may be narrow, but takes a run a layer to learn it.

Outputs behind comparisons, sorting and rounding, which a last bit decides, are not looked at.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from ...errors import HalotileError
from ...schedules.words.half_error import HalfError
from ...targets.convert import convert
from ..cache.origin import origin
from ..given import ModelGiven
from ..quantise.halves import key_of_samples, name_of, samples_of, whole_model
from ..state import Options

if TYPE_CHECKING:
    import onnx

USUAL = 1e-2  # of the largest value of an output: what comparisons allow float16
LEFT = 0.9  # of the error that is aimed at where it is not kept at once
WIDE = 1 / 3  # of the multiply-adds: more in float32 leave little of what float16 gains
SAMPLES = 2
NEAR, DRAWS = 1.25, 3  # what is within this factor of the error is the mean of so many draws of roundings
DECIDING = frozenset(
    (
        *("ArgMax", "ArgMin", "Ceil", "Equal", "Floor", "Greater", "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual"),
        *("NonMaxSuppression", "NonZero", "QuantizeLinear", "DynamicQuantizeLinear", "Round", "Sign", "TopK", "Unique"),
    )
)
FLOATS = frozenset((1, 10, 11, 16))  # of ONNX's types


def bounded(model: ModelGiven, options: Options, calibrate: object, error: object) -> HalfError | None:
    """What layers in float16 by ``options.halves`` make outputs off by, and what keeps the ``error`` (None: USUAL);
    None where that can't be told, or the target does not compute in float16. Raises HalotileError for an error that is
    none."""
    limit = _checked(error)
    known = options.halves
    if not known or not any(t.has_halves for t in (options.target, *(options.levels or ()))):
        return None
    samples = samples_of(model, calibrate, options.fixed, options.shapes)
    given = calibrate is not None

    def make() -> bytes:
        found = _found(model, known, samples, given, limit)
        return json.dumps(None if found is None else asdict(found)).encode()

    cache, key = options.cache, key_of_samples("bounded", model, samples, origin(), repr((limit, given)))
    return convert(json.loads(make() if cache is None else cache.entry(key, make)), HalfError | None)


def _checked(error: object) -> float:
    if error is None:
        return USUAL
    if isinstance(error, bool) or not isinstance(error, Real) or not 0 < float(error) < 1:
        raise HalotileError(f"error={error!r}: give what outputs may be off by, as a part of their largest value: 0.02")
    return float(error)


def _found(
    source: ModelGiven, known: Mapping[str, float], samples: Sequence[Mapping[str, np.ndarray]], given: bool,
    limit: float,
) -> HalfError | None:  # fmt: skip
    try:
        forecast = _Forecast.of(source, known, samples, given)
    except HalotileError:
        return None  # ONNX Runtime can't tell: layers are in float16 as before
    return None if forecast is None else forecast.kept(limit)


@dataclass(eq=False)
class _Forecast:
    """What outputs are off by where layers are in float16; ``work``: multiply-adds of these, by name."""

    model: onnx.ModelProto
    samples: list[Mapping[str, np.ndarray]]
    wanted: list[list[np.ndarray]]
    work: Mapping[str, float]
    known: dict[tuple[int, float], float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, source: ModelGiven, known: Mapping[str, float], samples: Sequence[Mapping[str, np.ndarray]], given: bool
    ) -> _Forecast | None:
        """None where there is no layer, no output or no finite answer to look at."""
        from ...passes.halves.halves import END, ROOM
        from ..quantise.apply import products
        from ..quantise.plan import outputs_of
        from ..quantise.prepare import prepared
        from .shares import spread

        model = whole_model(source)
        for node in model.graph.node:
            node.name = name_of(node)
        model = prepared(model, named=True)
        _keep_steady(model)
        able = [n for n in products(model) if ROOM * known.get(n.name, math.inf) <= END]
        if not able or not model.graph.output:
            return None
        for tried in [spread(samples, SAMPLES)] if given else [[s] for s in samples]:
            wanted = outputs_of(model, tried)
            if all(np.isfinite(o).all() for outputs in wanted for o in outputs):
                return cls(model, tried, wanted, _multiply_adds(model, able))
        return None

    def kept(self, limit: float) -> HalfError | None:
        """What keeps the ``limit``, by what is expected; None where numbers become infinite."""
        from .rounding import SMALL as SMALL_ERRORS
        from .rounding import TRANSFORMED

        every = self._off(0, TRANSFORMED, limit)
        if not math.isfinite(every):
            return None
        if every <= limit:
            return HalfError(every, limit)
        wide = self._wide(LEFT * limit, SMALL_ERRORS)
        if wide is None:
            return HalfError(0.0, limit, every, none=True)
        return HalfError(self._off(wide, SMALL_ERRORS), limit, every, tuple(self._order[:wide]))

    @property
    def _order(self) -> list[str]:
        return sorted(self.work, key=lambda name: self.work[name])

    def _wide(self, limit: float, transforms: float) -> int | None:
        """How many layers, in order, stay in float32; None if that are too many. By bisection."""
        if self._off(0, transforms) <= limit:
            return 0
        sums = np.cumsum([self.work[name] for name in self._order])
        high = int(np.searchsorted(sums, WIDE * sums[-1], side="right"))
        if high == 0 or self._off(high, transforms) > limit:
            return None
        low = 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._off(middle, transforms) <= limit else (middle, high)
        return high

    def _off(self, wide: int, transforms: float, near: float = 0.0) -> float:
        """What outputs are off by with the first so many layers in float32; ``near`` that more exactly."""
        from ..quantise.plan import error_of, outputs_of
        from .rounding import rounded

        def drawn(draw: int) -> float:
            model = rounded(self.model, dict.fromkeys(self._order[wide:], "float16"), transforms, draw)
            return error_of(self.wanted, outputs_of(model, self.samples))

        key = wide, transforms
        if key not in self.known:
            found = [drawn(0)]
            if near / NEAR <= found[0] <= near * NEAR:
                found += map(drawn, range(1, DRAWS))
            self.known[key] = sum(found) / len(found)
        return self.known[key]


def _multiply_adds(model: onnx.ModelProto, layers: Sequence[onnx.NodeProto]) -> dict[str, float]:
    """Of each layer, where shapes are known; of others as if they had one output."""
    weights = {t.name: list(t.dims) for t in model.graph.initializer}
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*model.graph.input, *model.graph.value_info, *model.graph.output)
    }
    found = {}
    for node in layers:
        dims, result = weights[node.input[1]], shapes.get(node.output[0], [])
        if node.op_type == "ConvTranspose":
            places = max(1, math.prod(shapes.get(node.input[0], [])))
            found[node.name] = float(places * math.prod(dims[1:]))
        else:
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            terms = math.prod(dims[1:]) if node.op_type == "Conv" or transposed else dims[-2]
            found[node.name] = float(max(1, math.prod(result)) * terms)
    return found


def _keep_steady(model: onnx.ModelProto) -> None:
    """Leaves the outputs in floats that no decision is between."""
    decided: set[str] = set()
    for node in model.graph.node:
        if node.op_type in DECIDING or _to_integers(node) or not decided.isdisjoint(node.input):
            decided.update(node.output)
    kept = [o for o in model.graph.output if o.name not in decided and o.type.tensor_type.elem_type in FLOATS]
    del model.graph.output[:]
    model.graph.output.extend(kept)


def _to_integers(node: onnx.NodeProto) -> bool:
    return node.op_type == "Cast" and any(a.name == "to" and a.i not in FLOATS for a in node.attribute)
