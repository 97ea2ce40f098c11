"""manifest.json as it is read: every field that anything depends on has its type here.

A manifest may come from anywhere. It names files in its own folder and nowhere else, and never a command.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from ...errors import OutputError
from ...targets.convert import FactLimits
from ...targets.plain import Json, JsonView
from ...targets.target import Target
from ...targets.typed import LARGEST, typed, typed_target
from ..spec import DTYPES, Symbol, TensorSpec
from .digest import digest

LARGEST_FILE = 64 << 20  # bytes; the largest models' have a few million

Size = Annotated[int, FactLimits(low=0, high=LARGEST)]
Sha256 = Annotated[str, FactLimits(form=r"\A[0-9a-f]{64}\Z")]
FileName = Annotated[str, FactLimits(form=r"\A(?!\.\.?\Z)[^/\0]+\Z")]  # in the folder itself


@dataclass(frozen=True)
class RecordedTensor:
    """An input or an output."""

    name: str
    dtype: Annotated[str, FactLimits(form=rf"\A({'|'.join(DTYPES)})\Z")]
    shape: tuple[Size | str, ...]  # texts are formulas of open dimensions

    def spec(self) -> TensorSpec:
        return TensorSpec(self.name, self.dtype, self.shape)


@dataclass(frozen=True)
class OpenDimension:
    """A size that every run chooses, and what it may be."""

    name: str
    low: Size = 0
    high: Size | None = None
    multiple: Annotated[int, FactLimits(low=1, high=LARGEST)] = 1
    typical: Size = 1
    why: tuple[str, ...] = ()

    def symbol(self) -> Symbol:
        return Symbol(self.name, self.low, self.high, self.multiple, self.typical, self.why)


@dataclass(frozen=True)
class File:
    """What a file of the folder holds."""

    sha256: Sha256
    bytes: Size


@dataclass(frozen=True)
class RecordedModelFile:
    """The ONNX file that the library was built from, and the files beside it that hold its tensors."""

    file: FileName | None = None
    sha256: Sha256 | None = None
    external: dict[str, Sha256] = field(default_factory=dict)


@dataclass(frozen=True)
class FixedValue:
    """The value of an input that became a constant; JSON has no number for what is not finite."""

    shape: tuple[Size, ...]
    values: tuple[bool | int | float | Literal["nan", "inf", "-inf"], ...]


@dataclass(frozen=True)
class ReachOfAxis:
    """What one axis of an output needs of an input (compiler/reach/words.py)."""

    input: str
    kind: Literal["pointwise", "rows", "whole"]
    input_axis: Size | None = None
    stride: tuple[Size, Annotated[int, FactLimits(low=1, high=LARGEST)]] = (1, 1)
    before: int = 0
    after: int = 0
    multiple: Annotated[int, FactLimits(low=1, high=LARGEST)] = 1
    period: Annotated[int, FactLimits(low=1, high=LARGEST)] = 1
    lows: tuple[int, ...] = ()
    highs: tuple[int, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class CutOfAxis:
    """How crops compute an axis of an output."""

    front: Size = 0
    back: Size = 0
    period: Annotated[int, FactLimits(low=1, high=LARGEST)] = 1
    problem: str = ""


@dataclass(frozen=True)
class ReachOfOutput:
    """What an output needs of every input, and how crops compute it."""

    output: str
    inputs: dict[str, tuple[ReachOfAxis, ...]] = field(default_factory=dict)
    cuts: tuple[CutOfAxis, ...] = ()


@dataclass(frozen=True)
class RecordedMachine:
    """The facts of the target that messages name; the whole of it is for codegen/manifest.py."""

    id: str = "another target"
    triple: str = ""
    cpu: str = "another processor"


@dataclass(frozen=True)
class Report:
    """The facts of the report that runs and comparisons depend on."""

    dropped_inputs: tuple[str, ...] = ()
    dropped_shapes: dict[str, tuple[Size | str, ...]] | None = None
    lengths: dict[str, Size] = field(default_factory=dict)
    kernels: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A manifest. ``everything`` is all of it as plain data; what is not there has its default."""

    format: Literal["halotile"] = "halotile"
    version: str = ""
    name: str = "model"
    library: Annotated[str, FactLimits(form=r"\A(lib\w+\.(so|dylib)|\w+\.(wasm|dll))\Z")] | None = None
    header: Annotated[str, FactLimits(form=r"\A\w+\.h\Z")] | None = None
    archive: Annotated[str, FactLimits(form=r"\Alib\w+\.a\Z")] | None = None
    executable: Literal["model_run"] | None = None
    example: Literal["main.c"] | None = None
    cmake: Annotated[str, FactLimits(form=r"\A\w+\.cmake\Z")] | None = None
    pkgconfig: Annotated[str, FactLimits(form=r"\A\w+\.pc\Z")] | None = None
    loader: Annotated[str, FactLimits(form=r"\A\w+\.mjs\Z")] | None = None
    import_library: Annotated[str, FactLimits(form=r"\A\w+\.lib\Z")] | None = None
    fingerprint: str = ""
    inputs: tuple[RecordedTensor, ...] = ()
    outputs: tuple[RecordedTensor, ...] = ()
    symbols: tuple[OpenDimension, ...] = ()
    reach: tuple[ReachOfOutput, ...] = ()
    weight_bytes: Size = 0
    arena_bytes: Size = 0
    target: RecordedMachine | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    model: RecordedModelFile = RecordedModelFile()
    options: Json | None = None
    files: dict[FileName, File] = field(default_factory=dict)
    report: Report = Report()
    sha256: Sha256 | None = None  # of all else
    everything: Json = field(default_factory=dict)

    @property
    def file_names(self) -> dict[str, str]:
        """Kind -> name of the files that a build makes beside the manifest."""
        kinds = ("library", "header", "archive", "executable", "example", "cmake", "pkgconfig", "loader",
                 "import_library")  # fmt: skip
        return {kind: name for kind in kinds if (name := getattr(self, kind))}

    def check(self, file: Path, of: Callable[[Path], str] = digest) -> None:
        """Raises OutputError unless ``file``, one of those of the folder, holds what was built; ``of`` says its
        SHA-256."""
        stated = self.files.get(file.name)
        if stated is None:
            raise OutputError(f"{file} is not among the files of its manifest; build it again")
        if file.stat().st_size != stated.bytes or of(file) != stated.sha256:
            raise OutputError(
                f"{file} is not what its manifest records (its SHA-256 differs): it is damaged, or the two are from "
                "different builds; build it again"
            )


def read(path: Path) -> Recorded | None:
    """The manifest in a file, or None when there is none that could be one of ours; OutputError for a field of another
    type than builds write, and for one that says anything but what was written."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        content = content_digest(data) if isinstance(data, dict) else ""
    except (OSError, ValueError, RecursionError):
        return None
    if not content or data.get("format") != "halotile":
        return None
    recorded: Recorded = typed({**data, "everything": data}, Recorded, str(path), OutputError)
    if recorded.sha256 != content:
        raise OutputError(
            f"{path} is not as it was written (its SHA-256 {'differs' if recorded.sha256 else 'is missing'}): it is "
            "damaged, was changed, or is of an older version; build it again"
        )
    return recorded


def content_digest(data: JsonView) -> str:
    """SHA-256 of what a manifest says, however it is laid out."""
    content = {key: value for key, value in data.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def target_of(manifest: Json) -> Target:
    """The target that a manifest was made for, fact by fact; raises OutputError for one that lacks them."""
    facts = manifest.get("target")
    if facts is None:
        raise OutputError("the manifest does not say what target it was built for; build from the model instead")
    return typed_target(facts, "the manifest", OutputError)
