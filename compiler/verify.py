"""Compares a compiled model with ONNX Runtime, which runs the original file with its graph optimisations off.

The measure is one number an output: the largest absolute difference against ``rtol * max|reference| + atol``. NaN and
infinities must sit in the same places; integers and booleans must be equal. A model that rounds to integers may differ
by what ties do to it (ties.py), any by what rounding does to the reference's own answer (explain.py), and it says so.
The result is plain data.
"""

from __future__ import annotations

import importlib.util
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ModelError, RunError, ToolchainError, VerificationError, several
from .options import Fixed, encodable
from .sample import dtype_of, random_inputs
from .spec import TensorSpec, length_name

if TYPE_CHECKING:
    import onnx

    from ..targets.plain import Json
    from .distances import Distance
    from .explain import Explained

RTOL = 1e-3
WEIGHT_RTOL = {"float32": RTOL, "float16": 1e-2, "int8": 0.1}  # by how weights are stored
PRECISION_RTOL = {"float32": RTOL, "bfloat16": 0.1, "float16": 1e-2}  # the harness's models: 3e-3 to 6e-2
ATOL = 1e-5
EXACT_FACTOR = 0.1
EXACT_SUMS = ("session.x64quantprecision", "1")  # else they saturate at 16 bits on x86-64 processors without VNNI
SUMS_OF_BYTES = frozenset(  # and QLinear...
    ("ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QGemm", "QAttention")
)

Arrays = Mapping[str, np.ndarray]


class NoReference(VerificationError):
    """ONNX Runtime itself can't load or run the model, so there is nothing to compare with."""


@dataclass(frozen=True)
class OutputCheck:
    """One output: ``max_error`` may be at most ``limit``; ``reason`` says what failed, empty when nothing did.

    ``constant``: every element of the reference is the same, so that agreement says little. ``ties``: the part of
    ``limit`` that is there because the model rounds to integers; 0 where the output agrees without. ``moved``: the
    reference's own answer is as far off when its constants and inputs move by this part of themselves; 0 where the
    output agrees without. ``rows`` of those that the model puts in order have changed places with near ties.
    """

    name: str
    elements: int
    max_error: float
    max_reference: float
    limit: float
    mismatches: int
    reason: str = ""
    constant: bool = False
    ties: float = 0.0
    moved: float = 0.0
    rows: int = 0

    @property
    def ok(self) -> bool:
        return not self.reason

    @property
    def verdict(self) -> str:
        """A few words: whether it agrees, and what had to be allowed for that."""
        if not self.ok:
            return "DIFFERS"
        if not self.moved:
            return "ok"
        rows = f"; {several(self.rows, 'row')} in other places" if self.rows else ""
        return f"ok: as the reference itself when its constants and inputs move by {self.moved:.0e} of themselves{rows}"


@dataclass(frozen=True)
class Verification:
    """The outcome over all outputs. ``inputs`` is ``random`` or ``given``, ``sizes`` are those of open dimensions."""

    outputs: tuple[OutputCheck, ...]
    rtol: float
    atol: float
    reference: str
    inputs: str
    seed: int
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return all(o.ok for o in self.outputs)

    @property
    def max_error(self) -> float:
        """The largest absolute difference over all outputs."""
        return max((o.max_error for o in self.outputs), default=0.0)

    def message(self) -> str:
        """One line: what failed first and how many did, or how near the outputs are."""
        bad = [o for o in self.outputs if not o.ok]
        at = f" at {', '.join(f'{name} {size}' for name, size in self.sizes.items())}" if self.sizes else ""
        if not bad:
            weak = sum(o.constant for o in self.outputs)
            have = "has" if weak == 1 else "have"
            doubt = f"; {weak} of them {have} one value everywhere, which proves little" if weak else ""
            one = len(self.outputs) == 1
            agree = f"{len(self.outputs)} output{'' if one else 's'} agree{'s' * one} with {self.reference}"
            tied = max(o.ties for o in self.outputs)
            ties = f"; where it rounds to integers, ties may move them by {tied:.2e}" if tied else ""
            moved = [o for o in self.outputs if o.moved]
            are = "is" if len(moved) == 1 else "are"
            own = f"; {len(moved)} {are} as far off as its own answer moves with its constants" if moved else ""
            return f"{agree}{at}, largest error {self.max_error:.2e}{doubt}{ties}{own}"
        more = f" (and {len(bad) - 1} more outputs)" if len(bad) > 1 else ""
        return f"output {bad[0].name!r} differs from {self.reference}{at}: {bad[0].reason}{more}"

    def raise_if_failed(self) -> None:
        """Raises :class:`VerificationError` with the message unless everything agrees."""
        if not self.ok:
            raise VerificationError(self.message())

    def data(self) -> Json:
        """Plain data for JSON."""
        plain = {name: value for name, value in asdict(self).items() if name != "sizes" or value}
        plain["outputs"] = [{**asdict(o), "ok": o.ok} for o in self.outputs]
        return {"ok": self.ok, "max_error": self.max_error, **plain}


def default_rtol(weights: str, precision: str = "float32") -> float:
    """What is allowed of a build whose weights are stored as ``weights``, and of its ``precision``."""
    return max(WEIGHT_RTOL.get(weights, RTOL), PRECISION_RTOL.get(precision, RTOL))


def available() -> bool:
    """Whether onnxruntime is installed; does not import it."""
    return importlib.util.find_spec("onnxruntime") is not None


def verify(
    run: Callable[[dict[str, np.ndarray]], Arrays],
    model: Any,
    inputs: Sequence[TensorSpec],
    given: Arrays | None = None,
    *,
    dropped: Mapping[str, Sequence[Any]] | None = None,
    fixed: Mapping[str, Fixed] | None = None,
    rtol: float = RTOL,
    atol: float = ATOL,
    exact: bool = False,
    seed: int = 0,
) -> Verification:
    """Runs ``run`` and ONNX Runtime on the same arrays and compares every output of ``model``.

    ``model`` is the original file, bytes or ModelProto. ``given`` names arrays for all or some inputs; the others are
    drawn from ``seed``. ``exact`` tightens both tolerances ten times. ``dropped``: shapes of inputs of ``model`` that
    ``run`` lacks because no output depends on what they hold; open dimensions are 1 without. ``fixed``: values of
    inputs that ``run`` has as constants.
    """
    if not all(isinstance(t, numbers.Real) and 0 <= t < np.inf for t in (rtol, atol)):
        raise RunError(f"tolerances are numbers, finite and not negative, not rtol={rtol!r}, atol={atol!r}")
    if given is not None and not isinstance(given, Mapping):
        raise RunError(f"inputs must be a dict of names to arrays, got {type(given).__name__}")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise RunError(f"seed={seed!r}: give a whole number from 0")
    reference = Reference(model)
    held = reference.held(fixed or {})
    if dropped is not None:
        dropped = {**dropped, **{n: a.shape for n, a in held.items()}}
    twice = sorted(held.keys() & set(given or ()))
    if twice:
        raise RunError(f"input {twice[0]!r} was fixed when the model was compiled; no other value can be compared")
    unknown = sorted(set(given or ()) - {s.name for s in inputs} - set(reference.inputs))
    if unknown:
        raise RunError(
            f"the model has no input {unknown[0]!r}; its inputs are {', '.join(s.name for s in inputs)}"
        )
    reference.check_same_model(inputs, dropped)
    made_up = {**random_inputs(inputs, reference.proto, seed), **reference.idle(dropped or {}, seed)}
    arrays = {**made_up, **held, **(given or {})}
    everything = run({s.name: arrays[s.name] for s in inputs})
    theirs = reference(arrays, seed)
    ours = {n: there(everything, n, theirs) for n in everything}
    factor = EXACT_FACTOR if exact else 1.0
    checks = tuple(compare(n, ours.get(n), theirs[n], rtol * factor, atol * factor) for n in theirs)
    if not all(c.ok for c in checks):
        checks = _with_ties(checks, ours, theirs, reference.ties(arrays, seed, theirs), rtol * factor, atol * factor)
    if not all(c.ok for c in checks):
        wrong = [c.name for c in checks if not c.ok]
        found = reference.explained(wrong, ours, theirs, (rtol * factor, atol * factor), arrays, seed, exact)
        checks = tuple(_allowed(c, found.get(c.name)) for c in checks)
    return Verification(
        outputs=checks,
        rtol=rtol * factor,
        atol=atol * factor,
        reference=reference.name,
        inputs="given" if given else "random",
        seed=seed,
    )


def _with_ties(
    checks: Sequence[OutputCheck], ours: Arrays, theirs: Arrays, moved: Mapping[str, Distance], rtol: float, atol: float
) -> tuple[OutputCheck, ...]:
    """The checks, again where ties move an output, as far as they do at most and as much as they do altogether."""
    from .distances import TIMES, distance

    found = []
    for check in checks:
        name, spread = check.name, moved.get(check.name)
        if check.ok or spread is None or not spread.largest or name not in ours:
            found.append(check)
            continue
        again = compare(name, ours[name], theirs[name], rtol, atol, TIMES * spread.largest)
        much = distance(ours[name], [theirs[name]]).mean > TIMES * spread.mean
        found.append(check if again.ok and much else again)
    return tuple(found)


def _allowed(check: OutputCheck, why: Explained | None) -> OutputCheck:
    if why is None:
        return check
    return replace(
        check, max_error=why.error, limit=why.limit, mismatches=0, reason="", moved=why.size, rows=why.rows
    )


def there(ours: Arrays, name: str, theirs: Arrays) -> np.ndarray:
    """What there is of an output with room for more, which another output tells (frontend/partial.py)."""
    array, count = ours[name], ours.get(length_name(name))
    wanted = theirs.get(name)
    if count is None or wanted is None or wanted.ndim != array.ndim or length_name(name) in theirs:
        return array
    for axis, (room, length) in enumerate(zip(array.shape, wanted.shape)):
        if room != length:  # only one can differ
            return array.take(range(min(room, int(count[0]))), axis)
    return array


def compare(
    name: str, ours: np.ndarray | None, theirs: np.ndarray, rtol: float, atol: float, ties: float = 0.0
) -> OutputCheck:
    """One output against its reference, by the module's measure; half-width floats may differ by two of their ulps,
    everything by ``ties``."""

    def check(
        reason: str, error: float = float("inf"), top: float = 0.0, limit: float = 0.0, n: int = 0
    ) -> OutputCheck:
        one = theirs.flat[0] if theirs.size else 0
        constant = theirs.size > 1 and bool(((theirs != theirs) if one != one else (theirs == one)).all())
        return OutputCheck(name, int(theirs.size), error, top, limit, n, reason, constant, ties)

    if ours is None:
        return check("it is missing")
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return check(f"it is {ours.dtype}{list(ours.shape)}, expected {theirs.dtype}{list(theirs.shape)}")
    if theirs.size == 0:
        return check("", 0.0)
    if theirs.dtype.kind in "biu":
        if theirs.dtype.kind == "b" or theirs.dtype.itemsize > 2:
            ties = 0.0  # an index or a flag has no steps: what ties do to it can't be measured
        steps = np.abs(ours.astype(np.float64) - theirs.astype(np.float64)) if ties else ours != theirs
        wrong = int(np.count_nonzero(steps > ties))
        error = float(steps.max())
        return check(f"{wrong} of {theirs.size} elements differ" if wrong else "", error, limit=ties, n=wrong)
    rtol = max(rtol, 2 * _epsilon(theirs.dtype)) if theirs.dtype.itemsize < 4 else rtol
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    odd = int(np.count_nonzero(np.isnan(a) != np.isnan(b)))
    if odd:
        return check(
            f"NaN in {odd} of {b.size} places where the reference has none, or the other way round", n=odd
        )
    odd = int(np.count_nonzero((np.isinf(a) | np.isinf(b)) & (a != b)))
    if odd:
        return check(f"infinities differ in {odd} of {b.size} places", n=odd)
    finite = np.isfinite(b)
    top = float(np.max(np.abs(b), initial=0.0, where=finite))
    limit = max(rtol * top + atol, ties)
    with np.errstate(invalid="ignore"):
        difference = np.where(finite, np.abs(a - b), 0.0)
    worst = int(np.argmax(difference))
    error = float(difference.flat[worst])
    wrong = int(np.count_nonzero(difference > limit))
    if not wrong:
        return check("", error, top, limit)
    where = [int(i) for i in np.unravel_index(worst, b.shape)]
    reason = (
        f"largest error {error:.3g} at {where} ({a.flat[worst]:.6g} instead of {b.flat[worst]:.6g}), "
        f"allowed {limit:.3g}; {wrong} of {b.size} elements are beyond"
    )
    return check(reason, error, top, limit, wrong)


def session(source: bytes | str, options: Any) -> Any:
    """ONNX Runtime's session, with exact sums of bytes where it has them: it can't rewrite every graph for that, and
    has none in LSTMs and in convolutions whose channels are last."""
    import onnxruntime

    options.add_session_config_entry(*EXACT_SUMS)
    try:
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception:  # its own kinds, which say nothing of the cause
        options.add_session_config_entry(EXACT_SUMS[0], "0")
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


class Reference:
    """ONNX Runtime on the original model: one thread, exact sums of bytes, which are rewritten graphs; all other models
    without graph optimisations."""

    def __init__(self, model: Any) -> None:
        if not available():
            raise ToolchainError(
                "verifying needs onnxruntime, which is not installed: pip install onnxruntime"
            )
        import onnx
        from google.protobuf.message import DecodeError

        # A compiler's check is nobody's usage statistics; it would also leave a file in the folder of temporary files.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        self._path = os.fspath(model) if isinstance(model, (str, os.PathLike)) else ""
        if self._path:
            source: Any = self._path
            try:
                self.proto = onnx.load(source, load_external_data=False)
            except DecodeError:
                raise ModelError(f"model file '{source}': not an ONNX model, or truncated") from None
            if not encodable(source):  # a name that ONNX Runtime can't be told
                source = self.proto.SerializeToString()
        elif isinstance(model, onnx.ModelProto):
            source, self.proto = model.SerializeToString(), model
        else:
            source, self.proto = bytes(model), onnx.load_from_string(bytes(model))
        self.name = f"ONNX Runtime {ort.__version__}"
        levels = ort.GraphOptimizationLevel
        rewritten = any(n.op_type.startswith("QLinear") or n.op_type in SUMS_OF_BYTES for n in self.proto.graph.node)
        options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED if rewritten else levels.ORT_DISABLE_ALL
        try:
            self._session = session(source, options)
        except Exception as error:  # the reference's own limits are not ours: say whose they are
            raise NoReference(f"{self.name} can't load the model: {_line(error)}") from None
        self.inputs = {i.name: i for i in self._session.get_inputs()}

    def __call__(self, arrays: Arrays, seed: int) -> dict[str, np.ndarray]:
        """All outputs by name. Inputs that nothing depends on may be absent from ``arrays``; they are made up."""
        feed = {}
        for name, info in self.inputs.items():
            feed[name] = np.asarray(arrays[name] if name in arrays else _made_up(info, info.shape, seed))
        names = [o.name for o in self._session.get_outputs()]
        try:
            results = self._session.run(names, feed)
        except Exception as error:
            raise NoReference(f"{self.name} failed on the model: {_line(error)}") from None
        return dict(zip(names, (np.asarray(r) for r in results)))

    def check_same_model(self, inputs: Sequence[TensorSpec], dropped: Mapping[str, Sequence[Any]] | None) -> None:
        """Raises :class:`RunError` where a library with these inputs can't have been built from this model.

        ``dropped``: inputs of the model that it lacks, None where that is not known."""
        found = {t.name: t for t in inputs}
        absent = set() if dropped is None else self.inputs.keys() - found.keys() - dropped.keys()
        stray = found.keys() - self.inputs.keys()
        apart = {n for n, t in found.items() if n not in stray and not _fits(t, self.inputs[n])}
        for name in [*found, *self.inputs]:
            if name in absent | stray | apart:
                ours, theirs = found.get(name), self.inputs.get(name)
                ours_text = f"{ours.dtype}{list(ours.shape)}" if ours else "absent"
                lengths = ["?" if d is None else d for d in theirs.shape] if theirs else []
                theirs_text = f"{_dtype(theirs)}{lengths}" if theirs else "absent"
                raise RunError(
                    f"the library was built from another model: input {name!r} is {ours_text} in the library "
                    f"and {theirs_text} in the model"
                )

    def held(self, fixed: Mapping[str, Fixed]) -> dict[str, np.ndarray]:
        """The arrays of inputs that are constants of the library."""
        types = {n: dtype_of(_dtype(self.inputs[n])) for n in fixed if n in self.inputs}
        return {n: np.asarray(fixed[n].values, t).reshape(fixed[n].shape or ()) for n, t in types.items()}

    def idle(self, shapes: Mapping[str, Sequence[int]], seed: int) -> dict[str, np.ndarray]:
        """Arrays of these shapes for inputs by name."""
        return {n: _made_up(self.inputs[n], shape, seed) for n, shape in shapes.items() if n in self.inputs}

    def ties(self, arrays: Arrays, seed: int, theirs: Arrays) -> dict[str, Distance]:
        """How far ties move each output whose answer is ``theirs``; empty where the model rounds nothing."""
        from .ties import spreads

        return spreads(self._whole(), lambda model: Reference(model)(arrays, seed), theirs)

    def explained(
        self, wrong: Sequence[str], ours: Arrays, theirs: Arrays, allowed: tuple[float, float], arrays: Arrays,
        seed: int, exact: bool,
    ) -> dict[str, Explained]:  # fmt: skip
        """Which of the outputs that are ``wrong`` are as far off as other answers of the reference are."""
        from .explain import explained, plain_limits

        limits = plain_limits(theirs, *allowed)
        return explained(
            wrong, ours, theirs, limits, self._whole(), arrays, lambda model, own: Reference(model)(own, seed), exact
        )

    def _whole(self) -> onnx.ModelProto:
        """The model with the weights that lie in files of their own."""
        import onnx

        return onnx.load(self._path) if self._path else self.proto


def _dtype(info: Any) -> str:
    """The element type of one of ONNX Runtime's inputs, as NumPy names it."""
    kind = info.type.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(kind, kind)


def _fits(spec: TensorSpec, info: Any) -> bool:
    """Whether a library's input can be one of the model: same type, and lengths where the model fixes them."""
    if spec.dtype != _dtype(info):
        return False
    known = not info.shape or len(info.shape) == len(spec.shape)  # no lengths: a scalar, or of unknown rank
    return known and all(not isinstance(d, int) or d < 0 or d == n for d, n in zip(info.shape, spec.shape))


def _made_up(info: Any, dims: Sequence[int], seed: int) -> np.ndarray:
    shape = tuple(d if isinstance(d, int) and d >= 0 else 1 for d in dims)
    return random_inputs([TensorSpec(info.name, _dtype(info), shape)], None, seed)[info.name]


def _epsilon(dtype: np.dtype) -> float:
    if dtype == np.float16:
        return float(np.finfo(np.float16).eps)
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).eps)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
