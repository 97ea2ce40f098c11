"""From what a build is made, as plain data in its manifest, and back: the model's digest and the options.

    manifest["model"]    file name and SHA-256 of the ONNX file, and of the files that hold its tensors
    manifest["options"]  every option but those that leave no trace in the result
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import HalotileError, ModelError, OutputError, ToolchainError
from ..schedules.words.half_error import HalfError, rtol_within
from ..targets.target import Target
from ..targets.typed import target_facts, typed, typed_target
from .codegen.toolchain import is_known_name
from .images import Image, Output, checked_images
from .options import Fixed
from .quantise.recorded import checked_assigned, checked_largest, checked_plan
from .runtime.digest import digest
from .runtime.recorded import target_of
from .verify import default_rtol

if TYPE_CHECKING:
    from ..targets.plain import Json
    from .runtime.recorded import Recorded
    from .state import Options

Span = tuple[int, int]

_HOLE = 1 << 20  # bytes that hold no tensor; exporters align to 4 or 64 KiB
# Not options of the library that is made; the target has an entry of its own.
_TRACELESS = ("target", "open", "stop_after", "dump_ir", "candidate", "cache", "explain", "fit")

# told where they say something
_SELDOM = ("inputs", "outputs", "levels", "int8", "halves", "half_error", "assigned", "stream")


def describe_model(source: Any) -> Json:
    """File name and digests of a model given as path, bytes or ModelProto."""
    name, sha = model_digest(source)
    external = {} if name is None else _external(Path(source))
    return {"file": name, "sha256": sha, "external": external}


def model_digest(source: Any, of: Callable[[Path], str] = digest) -> tuple[str | None, str]:
    """The name of a model's file, None of one in memory, and the SHA-256 of its bytes, which ``of`` says of a file."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        return os.fsencode(path.name).decode(errors="replace"), of(path)
    given = isinstance(source, (bytes, bytearray, memoryview))
    if not given and not hasattr(source, "SerializeToString"):
        raise ModelError(f"a model is a path, bytes or an onnx.ModelProto, not {type(source).__name__}")
    data = source if given else source.SerializeToString(deterministic=True)
    return None, hashlib.sha256(data).hexdigest()


def check_model(path: Path, recorded: Recorded) -> None:
    """Raises ModelError unless ``path`` is the very model that the manifest was built from."""
    if digest(path) != recorded.model.sha256:
        raise ModelError(f"{path} is not the model that the manifest was built from: its SHA-256 differs")
    found, wanted = _external(path), recorded.model.external
    for name in sorted({*found, *wanted}):
        if found.get(name) != wanted.get(name):
            file = path.parent / name
            raise ModelError(f"{file} is missing or differs from the one that the manifest was built from")


def describe_options(options: Options) -> Json:
    """Every option as JSON has it."""
    return {
        field.name: _plain(getattr(options, field.name))
        for field in fields(options)
        if field.name not in _TRACELESS and not (field.name in _SELDOM and getattr(options, field.name) is None)
    }


def options_of(recorded: Recorded, cc: str | None = None) -> Options:
    """The options that a manifest records, its target included; OutputError when it has none or unknown ones.

    ``cc`` is the user's own choice of a compiler. A manifest may come from anywhere, so that what it names runs only if
    it is one of our own list; ToolchainError else.
    """
    from .state import Options

    if recorded.options is None:
        raise OutputError("the manifest records no options; build from the model instead")
    unknown = sorted(recorded.options.keys() - {f.name for f in fields(Options) if f.name not in _TRACELESS})
    if unknown:
        made = recorded.version or "another version"
        raise OutputError(f"the manifest has the option {unknown[0]!r} of Halotile {made}, which this one lacks")
    target = target_of(recorded.everything)
    values = {**recorded.options, "target": recorded.everything["target"], "fixed": None}
    found = typed(values, Options, "the manifest", OutputError, "options")
    given: Any = recorded.options.get("levels") or ()
    levels = tuple(typed_target(facts, "the manifest", OutputError, "options.levels") for facts in given) or None
    options = _checked(replace(found, target=target, levels=levels, fixed=fixed_of(recorded)))
    if cc is None and options.cc is not None and not is_known_name(options.cc):
        raise ToolchainError(
            f"the manifest names {options.cc!r} as the C compiler; no file chooses a command: if it is the right one, "
            "give it yourself with --cc"
        )
    return options if cc is None else replace(options, cc=cc)


def fixed_of(recorded: Recorded | None) -> dict[str, Fixed] | None:
    """The inputs that became constants, and their values; OutputError for what no build writes."""
    from .runtime.recorded import FixedValue

    options = recorded.options if recorded is not None else None
    kind = dict[str, FixedValue] | None
    found = typed((options or {}).get("fixed"), kind, "the manifest", OutputError, "options.fixed")
    return {name: Fixed(v.shape, tuple(map(_number, v.values))) for name, v in (found or {}).items()} or None


def reference_of(model: object, recorded: Recorded | None) -> Any:
    """What a library's answers are compared with: the model that it was built from, in bytes where the library is, and
    what was put around it."""
    from .frontend.around import reference_model

    options = recorded.options if recorded is not None else None
    if options and options.get("int8"):
        from .quantise.plan import quantised_by

        model = quantised_by(model, checked_plan(options["int8"]))
    return reference_model(model, options) if options and (options.get("inputs") or options.get("outputs")) else model


def rtol_of(recorded: Recorded | None) -> float:
    """What a comparison allows a library: by how its weights are stored and its precision."""
    options = (recorded.options if recorded is not None else None) or {}
    found = (options.get(name, "float32") for name in ("weights", "precision"))
    rtol = default_rtol(*(typed(value, str, "the manifest", OutputError, "options") for value in found))
    return rtol_within(rtol, options.get("half_error"))


def _checked(options: Options) -> Options:
    """Refuses values that no build writes."""
    from . import options as check
    from .codegen.spec import FORMATS

    try:
        check.checked_name(options.name)
        check.checked_shapes(options.shapes)
        check.checked_typical(options.typical)
        if options.int8 is not None:
            checked_plan(options.int8)
        if options.halves is not None:
            checked_largest(options.halves)
        if options.half_error is not None and not options.half_error.is_sound:
            raise HalotileError("half_error: no error of outputs")
        if options.assigned is not None:
            checked_assigned(options.assigned)
        checked_images(options.inputs, Image, "inputs")
        checked_images(options.outputs, Output, "outputs")
        check.checked_threads(options.threads)
        check.checked_budget(options.memory_budget)
        check.checked_float_mode(options.float_mode)
        check.checked_optimize(options.optimize)
        check.checked_tile(options.tile)
        check.checked_weights(options.weights, options.exact, options.precision)
        check.checked_precision(options.precision, options.exact)
        for target in (options.target, *(options.levels or ())):
            check.check_widening(options.weights, target)
        check.checked_denormals(options.flush_denormals, options.exact)
    except HalotileError as error:
        raise OutputError(f"the manifest's options: {error}") from None
    if not set(options.formats) <= set(FORMATS):
        raise OutputError(f"the manifest: options.formats: {options.formats!r}, known are {', '.join(FORMATS)}")
    return options


def _external(path: Path) -> dict[str, str]:
    """Digests of the files beside the model that hold its tensors; of one with holes, without these."""
    return digests(path.parent, external_spans(path)[0])


def digests(
    folder: Path, spans: Mapping[str, Sequence[Span]], of: Callable[[Path, Sequence[Span]], str] = digest
) -> dict[str, str]:
    """SHA-256 of the parts of files in ``folder``."""
    return {name: of(folder / name, found) for name, found in spans.items()}


def external_spans(path: Path) -> tuple[dict[str, list[Span]], bool]:
    """Where the files beside a model hold its tensors: (first byte, byte behind the last) by the file's name; and
    whether that is all of them. Whoever compiles a model that can't be read says what is wrong."""
    import onnx

    from .frontend.tensors import TensorReader, external_tensors

    try:
        proto = onnx.load(os.fspath(path), load_external_data=False)
    except Exception:
        return {}, False
    reader = TensorReader(path.parent)
    spans: dict[str, list[Span]] = {}
    whole = True
    for tensor in external_tensors(proto):
        try:
            name, begin, end = reader.span(tensor)
            spans.setdefault(name, []).append((begin, end))
        except HalotileError:
            whole = False
    return {name: _joined(found) for name, found in sorted(spans.items())}, whole


def _joined(spans: list[Span]) -> list[Span]:
    """The spans in order, from the file's first byte on, and over what lies between them to align the next."""
    joined = [(0, 0)]
    for begin, end in sorted(spans):
        first, last = joined[-1]
        if begin - last <= _HOLE:
            joined[-1] = (first, max(last, end))
        else:
            joined.append((begin, end))
    return joined


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, Fixed):
        return {"shape": _plain(value.shape), "values": _plain(value.values)}
    if isinstance(value, Target):
        return target_facts(value)
    if isinstance(value, HalfError):
        return _plain(asdict(value))
    if isinstance(value, float) and not math.isfinite(value):  # which JSON has no numbers for
        return str(value)
    return [_plain(entry) for entry in value] if isinstance(value, (tuple, list)) else value


def _number(value: float | bool | str) -> float | bool:
    return float(value) if isinstance(value, str) else value
