"""Arrays in files: .npy, .npz, plain bytes (.bin), and ``-`` for the standard streams."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import OutputError, RunError, did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from ..given import ArraysGiven
    from ..spec import TensorSpec

STREAM = "-"
SUFFIXES = (".npy", ".npz", ".bin")


def read_arrays(pairs: Sequence[str], specs: Sequence[TensorSpec], unused: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """``-i x=in.npy``, ``-i in.npy`` (of a model with one input) or ``-i all.npz`` -> arrays by input name.

    ``specs``: TensorSpecs of the inputs, which say what the bytes of a .bin are. ``unused`` are inputs of the ONNX
    model that no output depends on. ``-`` is standard input."""
    by_name = {spec.name: spec for spec in specs}
    arrays: dict[str, np.ndarray] = {}
    for text in pairs:
        name, path = split_file(text, [*by_name], "input", unused)
        loaded = read_file(path, by_name.get(name or next(iter(by_name), "")), "input")
        if not isinstance(loaded, Mapping):
            arrays[name or next(iter(by_name))] = loaded
        elif name:
            raise RunError(f"input {name!r}: {path!r} holds several arrays; give it without a name")
        else:
            arrays.update(loaded)
    return arrays


def read_file(path: str, spec: Any, what: str) -> ArraysGiven:
    """The array in a file, or a dict of those in an .npz; ``spec`` says what plain bytes are."""
    import numpy as np

    try:
        data = sys.stdin.buffer.read() if path == STREAM else Path(path).read_bytes()
    except OSError as error:
        raise RunError(f"{what} file {path!r} can't be read: {error.strerror or 'not a file'}") from None
    shown = "standard input" if path == STREAM else repr(path)
    if path.endswith(".bin") or (path == STREAM and not data.startswith((b"\x93NUMPY", b"PK"))):
        return _plain(data, spec, f"{what} file {shown}")
    try:
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else {key: loaded[key] for key in loaded.files}
    except (OSError, ValueError, EOFError):
        raise RunError(f"{what} file {shown} is not a .npy or .npz file of plain numbers") from None


def _plain(data: bytes, spec: TensorSpec, where: str) -> object:
    """Plain bytes, in the order of C and of this machine, as the array that ``spec`` is of."""
    import numpy as np

    from ..runtime.loader import numpy_dtype

    if spec is None or not all(isinstance(d, int) for d in spec.shape):
        raise RunError(f"{where} is plain bytes, whose shape is not known; give a .npy file, which says it, or --size")
    dtype = numpy_dtype(spec.dtype)
    wanted = dtype.itemsize * math.prod(spec.shape)
    if len(data) != wanted:
        raise RunError(f"{where} has {len(data)} bytes; {spec} takes {wanted}")
    return np.frombuffer(data, dtype).reshape(spec.shape).copy()


def split_file(text: str, names: Sequence[str], what: str, unused: Sequence[str] = ()) -> tuple[str | None, str]:
    """``x=a.npy`` -> ("x", "a.npy"); without a name None, which a model with one tensor or an .npz allows."""
    # names may hold equals signs: known ones first, x=y before x
    for name in sorted([*names, *unused], key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, text[len(name) + 1 :]
    name, equals, path = text.partition("=")
    if equals:
        near = did_you_mean(name, names)
        raise RunError(f"the model has no {what} {name!r}; its {what}s are {', '.join(names)}{near}")
    if len(names) != 1 and not text.endswith(".npz") and text != STREAM:
        raise RunError(
            f"the model has {len(names)} {what}s ({', '.join(names)}); write name={text}, or give an .npz"
        )
    return None, text


def check_kind(file: Path) -> None:
    """Refuses a file whose suffix says that it is something else than what is written."""
    if file.suffix and file.suffix.lower() not in SUFFIXES and (file.is_file() or not file.exists()):
        raise OutputError(f"output {file} can't be written: {file.suffix} is none of {', '.join(SUFFIXES)}")


def write_arrays(path: str, arrays: Mapping[str, object]) -> None:
    """One array as .npy or plain bytes (.bin), or several as .npz, under the file's name only when whole.

    ``-`` is standard output. A device or a pipe is written to, not replaced."""
    if path == STREAM:
        _write(sys.stdout.buffer, "x.npz" if len(arrays) > 1 else "x.npy", arrays)
        sys.stdout.flush()
        return
    file = Path(path)
    special = file.exists() and not file.is_file()
    partial = file if special else file.with_name(f".{file.name}.partial")
    try:
        with partial.open("wb") as end:
            _write(end, file.name, arrays)
        if not special:
            os.replace(partial, file)
    except OSError as error:
        raise OutputError(f"output {file} can't be written: {error.strerror or error}") from None
    finally:
        if not special:
            partial.unlink(missing_ok=True)


def _write(end: Any, name: str, arrays: Mapping[str, Any]) -> None:
    import numpy as np

    memory = io.BytesIO()  # numpy asks a file where it is, which a pipe can't say
    if name.endswith(".npz"):
        np.savez(memory, **arrays)
    elif name.endswith(".bin"):
        memory.write(np.ascontiguousarray(next(iter(arrays.values()))).tobytes())
    else:
        np.save(memory, next(iter(arrays.values())))
    end.write(memory.getbuffer())
