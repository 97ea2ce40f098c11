"""From what a build is made, as plain data in its manifest, and back: the model's digest and the options.

    manifest["model"]    file name and SHA-256 of the ONNX file, and of the files that hold its tensors
    manifest["options"]  every option but those that leave no trace in the result
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import HalotileError, ModelError, OutputError
from .codegen.manifest import target_of
from .options import Fixed

if TYPE_CHECKING:
    from .pipeline import Options

_TRACELESS = ("target", "stop_after", "dump_ir", "candidate")  # the target has an entry of its own


def describe_model(source: Any) -> dict[str, Any]:
    """File name and digests of a model given as path, bytes or ModelProto."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        name = os.fsencode(path.name).decode(errors="replace")
        return {"file": name, "sha256": digest(path), "external": _external(path)}
    given = isinstance(source, (bytes, bytearray, memoryview))
    data = source if given else source.SerializeToString(deterministic=True)
    return {"file": None, "sha256": hashlib.sha256(bytes(data)).hexdigest(), "external": {}}


def check_model(path: Path, manifest: dict[str, Any]) -> None:
    """Raises ModelError unless ``path`` is the very model that the manifest was built from."""
    wanted = manifest.get("model") or {}
    if digest(path) != wanted.get("sha256"):
        raise ModelError(f"{path} is not the model that the manifest was built from: its SHA-256 differs")
    for name, expected in (wanted.get("external") or {}).items():
        file = path.parent / name
        if not file.is_file() or digest(file) != expected:
            raise ModelError(f"{file} is missing or differs from the one that the manifest was built from")


def digest(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def describe_options(options: Options) -> dict[str, Any]:
    """Every option as JSON has it."""
    return {
        field.name: _plain(getattr(options, field.name))
        for field in fields(options)
        if field.name not in _TRACELESS
    }


def options_of(manifest: dict[str, Any]) -> Options:
    """The options that a manifest records, its target included; OutputError when it has none or unknown ones."""
    from .pipeline import Options

    recorded = manifest.get("options")
    if not isinstance(recorded, dict):
        raise OutputError("the manifest records no options; build from the model instead")
    unknown = sorted(recorded.keys() - {field.name for field in fields(Options)})
    if unknown:
        made = manifest.get("version", "another version")
        raise OutputError(f"the manifest has the option {unknown[0]!r} of Halotile {made}, which this one lacks")
    values = {key: _value(value) for key, value in recorded.items()}
    values["fixed"] = fixed_of(manifest)
    return _checked(Options(target=target_of(manifest), **values))


def fixed_of(manifest: dict[str, Any]) -> dict[str, Fixed] | None:
    """The inputs that became constants, and their values; OutputError for what no build writes."""
    recorded = (manifest.get("options") or {}).get("fixed")
    try:
        found = {name: Fixed(tuple(v["shape"]), tuple(v["values"])) for name, v in (recorded or {}).items()}
    except (AttributeError, KeyError, TypeError):
        raise OutputError(f"the manifest has {recorded!r} as the values of fixed inputs") from None
    return found or None


def _checked(options: Options) -> Options:
    """Refuses values that no build writes."""
    from . import options as check
    from .codegen.library import FORMATS

    try:
        check.checked_threads(options.threads)
        check.checked_budget(options.memory_budget)
        check.checked_float_mode(options.float_mode)
        check.checked_optimize(options.optimize)
        check.checked_tile(options.tile)
        check.checked_weights(options.weights, options.target, options.exact)
        check.checked_denormals(options.flush_denormals, options.exact)
    except HalotileError as error:
        raise OutputError(f"the manifest's options: {error}") from None
    flags = {f.name: getattr(options, f.name) for f in fields(options) if isinstance(f.default, bool)}
    wrong = [name for name, value in flags.items() if not isinstance(value, bool)]
    if not isinstance(options.formats, tuple) or not set(options.formats) <= set(FORMATS):
        wrong.append("formats")
    if wrong:
        raise OutputError(f"the manifest has {getattr(options, wrong[0])!r} as the option {wrong[0]!r}")
    return options


def _external(path: Path) -> dict[str, str]:
    """Digests of the files beside the model that hold its tensors."""
    import onnx

    try:
        proto = onnx.load(os.fspath(path), load_external_data=False)
    except Exception:  # whoever compiles it says what is wrong
        return {}
    tensors = [*proto.graph.initializer, *(a.t for n in proto.graph.node for a in n.attribute if a.HasField("t"))]
    names = {e.value for t in tensors if t.data_location == t.EXTERNAL for e in t.external_data if e.key == "location"}
    return {name: digest(path.parent / name) for name in sorted(names) if (path.parent / name).is_file()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, Fixed):
        return {"shape": _plain(value.shape), "values": list(value.values)}
    return [_plain(entry) for entry in value] if isinstance(value, (tuple, list)) else value


def _value(value: Any) -> Any:
    """JSON's lists as the tuples that options hold."""
    if isinstance(value, dict):
        return {key: _value(entry) for key, entry in value.items()}
    return tuple(_value(entry) for entry in value) if isinstance(value, list) else value
