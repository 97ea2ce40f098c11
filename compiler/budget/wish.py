"""What a caller asks for with precision "auto", checked, and the options of the build that comes of it.

    budgeted("m.onnx", options, "auto", "samples.npz", 0.01)   options with a precision for each layer
    planner("m.onnx", options, "samples.npz")                  what knows of all limits, for a look without a build

What was found for equal models, options and samples comes from the cache.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import HalotileError, UnsupportedError
from ..cache.keys import key_of
from ..cache.origin import origin
from ..given import ModelGiven
from ..recipe import describe_model, describe_options
from ..state import Options

if TYPE_CHECKING:
    from .plan import Planner
    from .shares import Split

FORM = "1"  # of a record in the cache
Tell = Callable[[str, int, int], None]


def budgeted(
    model: ModelGiven, options: Options, precision: str, calibrate: object = None, error: object = None,
    progress: Tell | None = None, made: Planner | None = None,
) -> Options:  # fmt: skip
    """``options`` with a precision for each layer, where ``precision`` is "auto", by which the build's outputs are off
    by at most ``error`` of their largest value on the samples in ``calibrate``; else as they are. ``made``: a planner
    of the same model and samples, where there is one.

    Raises HalotileError for what can't be: samples or an error that are missing, a limit that nothing keeps."""
    if precision != "auto":
        return options
    limit = checked(options, calibrate, error)
    from ..cache.targets import resolved
    from .keep import applied, keeping

    split, runs = _split(model, options, calibrate), resolved(options.target, options.cache)[1]
    cache, key = options.cache, _key(model, options, split, repr((limit, runs)))
    kept = cache.get(key) if cache is not None else None
    if kept is None:
        made = made or _planner(model, options, split, progress)
        kept = json.dumps(keeping(model, options, made, limit, runs)).encode()
        if cache is not None:
            cache.put(key, kept)
    return applied(options, json.loads(kept))


def checked(options: Options, calibrate: object, error: Any, needs_error: bool = True) -> float:
    """The limit as a number."""
    if options.exact:
        raise HalotileError("precision auto rounds, which exact forbids: choose one of them")
    if options.levels:
        raise HalotileError("precision auto is for one processor, levels are several: give a target in their place")
    if options.stream is not None:
        raise HalotileError("precision auto measures whole runs, a library that streams has none: choose one of them")
    if calibrate is None:
        raise HalotileError(
            "precision auto needs sample inputs, on which errors are measured: give an .npz file, or a folder of them, "
            "to calibrate (--calibrate FILE)"
        )
    if error is None and needs_error:
        raise HalotileError(
            "precision auto needs an error to keep: give what outputs may be off by, as a part of their largest value, "
            "such as 0.01 (--error 0.01)"
        )
    good = error is None or isinstance(error, Real) and not isinstance(error, bool) and 0 < float(error) < 1
    if not good:
        raise HalotileError(f"error={error!r}: give what outputs may be off by, as a part of their largest value: 0.01")
    return 1.0 if error is None else float(error)


def planner(model: ModelGiven, options: Options, calibrate: object, progress: Tell | None = None) -> Planner:
    """What knows of shares, times and assignments (:class:`.plan.Planner`), each found when it is first asked for."""
    return _planner(model, options, _split(model, options, calibrate), progress)


def _split(model: ModelGiven, options: Options, calibrate: object) -> Split:
    from ..frontend.load import load
    from ..quantise.prepare import onnxruntime
    from ..quantise.samples import read_samples
    from ..quantise.wish import inputs_of, values_of
    from .shares import Split

    onnxruntime()
    graph = load(model).model.graph
    fixed = options.fixed or {}
    return Split.of([{**s, **values_of(fixed, graph)} for s in read_samples(calibrate, inputs_of(graph, fixed))])


def _planner(model: ModelGiven, options: Options, split: Split, progress: Tell | None) -> Planner:
    from ..frontend.load import load
    from ..quantise.prepare import prepared
    from ..quantise.ranges import ranges
    from .plan import Planner
    from .shares import Shares, with_room
    from .times import Times

    base = prepared(model)
    base.graph.name = load(model).name
    shares = Shares(base, with_room(ranges(base, split.used)), split)
    if not any(np.asarray(o).dtype.kind == "f" for o in shares.wanted[0][0]):
        raise UnsupportedError("precision auto: the model has no output in floats, whose error could be kept")
    return Planner(shares, Times(shares, _plain(options)), progress)


def _plain(options: Options) -> Options:
    """The options by which times are predicted: of the model alone, computed whole."""
    return replace(
        options, inputs=None, outputs=None, precision="float32", memory_budget=None, tile="off", dump_ir=None,
        timers=False, explain=False, check=False,
    )  # fmt: skip


def _key(model: ModelGiven, options: Options, split: Split, asked: str) -> str:
    from ..quantise.prepare import onnxruntime

    digest = hashlib.sha256()
    for sample in (*split.used, *split.held):
        for name, array in sorted(sample.items()):
            digest.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array).data)
    described = json.dumps([describe_model(model), describe_options(options)], sort_keys=True, default=str)
    target = repr(options.target)
    return key_of("budget", FORM, origin(), onnxruntime().__version__, described, target, asked, digest.hexdigest())
