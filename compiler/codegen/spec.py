"""What a library is made from (LibrarySpec), what its functions are called, and what is made (BuiltLibrary)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import TargetError
from ...targets.target import Target
from ...version import __version__
from ..spec import Condition, Symbol, TensorSpec
from ..stream.words import StreamPlan
from .link import PROGRAM
from .names import identifier
from .steps import LevelForm
from .toolchain import machine_of
from .transfers import FUNCTIONS as TRANSFERS
from .weights import ALIGNMENT

if TYPE_CHECKING:
    from ...targets.plain import Json

ABI, ABI_OF_SHAPES = 1, 2  # of the description of a model with fixed shapes, and of one with open shapes
FUNCTIONS = (
    "describe",
    "arena_bytes",
    "create",
    "create_in",
    "run",
    "threads",
    "destroy",
    "error_text",
)
OF_SHAPES = ("describe", "shape_check", "shape_dims", "arena_bytes_for", "create_for", "create_in_for", "run_shape",
             "threads", "destroy", "error_text")  # fmt: skip
OF_TENSORS = ("shape", "bytes_for")
OF_STREAMS = ("stream_steps", "stream_bytes", "open", "open_in", "room", "push", "push_all", "ready", "ready_of",
              "pull", "pull_of", "finish", "again", "still", "close")  # fmt: skip
FORMATS = ("so", "a", "exe", "extras")
_MOST_OF_A_STATIC_PROGRAM = (2 << 30) - (16 << 20)  # bytes of weights, beside its code
_LARGEST_OF_32_BITS, _MOST_OF_32_BITS = 2 << 30, 3 << 30  # one piece of memory (PTRDIFF_MAX), and all of a process


@dataclass(frozen=True)
class Level:
    """What a library has for the processors of one level: the objects of main and of the kernels that it calls, and
    whether these use the matrix unit. Its functions' names end in :func:`suffix` of its number."""

    target: Target
    object_bytes: bytes
    kernel_objects: tuple[bytes, ...] = ()
    matrix_unit: bool = False
    form: LevelForm = field(default_factory=LevelForm)


def suffix(number: int) -> str:
    """What the names of level ``number`` end in; the least, 0, has the plain ones."""
    return f"_{number}" if number else ""


@dataclass(frozen=True)
class LibrarySpec:
    """All that the link stage needs.

    ``object_bytes`` is an ELF object with ``int32_t halotile_kernel_main(inputs..., outputs..., weights, arena)``.
    ``kernel_objects`` are further objects that it calls into. ``timers`` counts the kernels that it times: 0, or all;
    ``scratchpad_bytes`` is what its stripes use of a scratchpad, 0 where there are none; ``scratchpad_offset`` is where
    the arena has as much, for machines without one.
    ``weights`` are bytes-like chunks that lie one behind the other. The arena of T threads has
    ``planned_bytes + T * workspace_bytes``, both multiples of 64; ``default_threads`` 0 means as many as the process
    may use. ``report`` is plain data that goes into the manifest, as do ``metadata`` (what the
    exporter tells of the model), ``model`` (file name
    and digest of the source) and ``options``, from which the same can be built again. ``flush_denormals``: runs count
    floats below the normal ones as zero. ``matrix_unit``: kernels use that of the target, which a process has to ask
    for.

    With ``symbols``, sizes that every run chooses, shapes of inputs and outputs may hold texts or Dims, and the object
    has two functions: ``int32_t halotile_kernel_shapes(const int64_t *symbols, int64_t *facts)`` fills the ``facts``
    numbers that follow from the sizes (planned bytes and workspace bytes of the arena, all dimensions of all inputs and
    outputs, then its own), the first of them -1 where a tensor would have more elements than kernels count; and main
    takes ``const int64_t *symbols, const int64_t *facts`` at its end. ``planned_bytes`` and ``workspace_bytes`` are
    those at the typical sizes. ``conditions`` are what sizes must satisfy besides their bounds. ``reach`` is what
    outputs need of inputs, as plain data (compiler/reach/words.py).

    ``levels`` are further levels of processors, from less to more, whose objects do the same as the library's own, the
    least one's: bytes of the arena, and facts, are then the most that any of them has. Main takes ``const void *made``
    behind the arena then: weights that the level's ``form`` makes of those in the file.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    object_bytes: bytes
    weights: Sequence[Any]
    planned_bytes: int
    workspace_bytes: int
    max_threads: int
    default_threads: int
    target: Target
    report: Json = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    version: str = __version__
    kernel_objects: tuple[bytes, ...] = ()
    model: Json = field(default_factory=dict)
    options: Json = field(default_factory=dict)
    timers: int = 0
    scratchpad_bytes: int = 0
    scratchpad_offset: int = 0
    flush_denormals: bool = False
    matrix_unit: bool = False
    symbols: tuple[Symbol, ...] = ()
    facts: int = 0
    conditions: tuple[Condition, ...] = ()
    levels: tuple[Level, ...] = ()
    form: LevelForm = field(default_factory=LevelForm)
    reach: tuple[Json, ...] = ()

    def __post_init__(self) -> None:
        if self.symbols:
            self._check_symbols()
        for what in ("planned_bytes", "workspace_bytes"):
            if getattr(self, what) % ALIGNMENT or getattr(self, what) < 0:
                raise ValueError(f"{what} is {getattr(self, what)}, which is not a multiple of {ALIGNMENT}")
        if not 0 <= self.default_threads <= self.max_threads or self.max_threads < 1:
            raise ValueError(
                f"default_threads {self.default_threads} is not within max_threads {self.max_threads}"
            )

    def _check_symbols(self) -> None:
        for symbol in self.symbols:
            if not symbol.least <= symbol.typical <= symbol.most or symbol.typical % symbol.multiple:
                raise ValueError(f"{symbol.name} can't be {symbol.typical}, its typical size: it is {symbol.allowed}")
        if self.facts < 2 + self.dimensions:
            raise ValueError(f"{self.facts} facts are too few for {self.dimensions} dimensions and the arena's two")

    @property
    def dimensions(self) -> int:
        """How many dimensions inputs and outputs have together."""
        return sum(len(t.shape) for t in (*self.inputs, *self.outputs))

    @property
    def identifier(self) -> str:
        """The model's name as a C identifier: the prefix of every function and the stem of every file."""
        return identifier(self.name)

    @property
    def functions(self) -> tuple[str, ...]:
        """The names that a library exports."""
        extra = (*(("kernel_seconds",) if self.timers else ()), *(TRANSFERS if self.scratchpad_bytes else ()))
        extra += OF_STREAMS if self.stream else ()
        usual = (*OF_SHAPES, *self._of_tensors()) if self.symbols else FUNCTIONS
        return tuple(f"{self.identifier}_{function}" for function in (*usual, *extra))

    @cached_property
    def stream(self) -> StreamPlan | None:
        """The plan of a library that streams, from the report; None of any other."""
        plain = self.report.get("stream")
        return None if plain is None else StreamPlan.of(plain)

    def _of_tensors(self) -> Iterator[str]:
        for kind, tensors in (("input", self.inputs), ("output", self.outputs)):
            for i in range(len(tensors)):
                yield from (f"{kind}_{i}_{function}" for function in OF_TENSORS)

    @property
    def all_levels(self) -> tuple[Level, ...]:
        """Every level that there is code for, from the least on."""
        return (Level(self.target, self.object_bytes, self.kernel_objects, self.matrix_unit, self.form), *self.levels)

    @property
    def weight_bytes(self) -> int:
        return sum(memoryview(chunk).nbytes for chunk in self.weights)

    def arena_bytes(self, threads: int) -> int:
        return self.planned_bytes + threads * self.workspace_bytes

    def check_addresses(self) -> None:
        """Raises TargetError for what no process of a 32-bit target can hold."""
        if self.symbols and self.target.system == "wasm":
            names = ", ".join(symbol.name for symbol in self.symbols)
            raise TargetError(f"libraries for {self.target.id} have fixed sizes: fix {names} (--shape)")
        if self.target.bits == 64:
            return
        arena = self.arena_bytes(max(1, self.default_threads))
        tensors = [t.nbytes for t in (*self.inputs, *self.outputs) if all(isinstance(dim, int) for dim in t.shape)]
        whole = arena + self.weight_bytes + sum(tensors)
        largest = max((arena, self.weight_bytes, *tensors))
        if largest >= _LARGEST_OF_32_BITS or whole > _MOST_OF_32_BITS:
            raise TargetError(
                f"arena, weights, inputs and outputs take {whole} bytes, which no 32-bit process of {self.target.id} "
                "can hold; build for a 64-bit target, or fix smaller shapes"
            )

    def check_program(self) -> None:
        """Raises TargetError for weights behind which a static program of x86-64 would not reach its own end."""
        if machine_of(self.target.triple) == "x86_64" and self.weight_bytes >= _MOST_OF_A_STATIC_PROGRAM:
            raise TargetError(
                f"the static program {PROGRAM} can't hold {self.weight_bytes} bytes of weights on x86-64, where its C "
                "library reaches 2 GiB; leave it out with --format so,a"
            )


@dataclass(frozen=True)
class BuiltLibrary:
    """The files of a finished library; ``library``, ``archive`` and ``executable`` are None unless asked for."""

    directory: Path
    header: Path
    manifest: Path
    fingerprint: str
    library: Path | None = None
    archive: Path | None = None
    executable: Path | None = None
    example: Path | None = None
    cmake: Path | None = None
    pkgconfig: Path | None = None
    loader: Path | None = None
    import_library: Path | None = None
