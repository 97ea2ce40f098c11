"""What the compiler knows about a machine: facts, as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from math import inf
from typing import Any

from . import llvm
from .fitted import Fitted, usual
from .systems import LLVM_TRIPLES, parse

# LLVM (19 to 22) counts a register too many where two floats are loaded as the halves of one vector register, and takes
# the addition of 12 to their address for what a load of a block adds, 8: rows of three floats were read out of place.
NO_BLOCK_LOADS = ("-arm-load-store-opt:bool=false",)

# To see whether a loop of up to 10 rounds would fold away if it were unrolled, LLVM simulates it, once in each of two
# passes. Kernels' short loops have long bodies, of which nothing folds: a sixth of LLVM's time for nothing.
LESS_ANALYSIS = ("-unroll-max-iteration-count-to-analyze:uint=0",)


@dataclass(frozen=True)
class Target:
    """One machine to compile for. Sizes in bytes, widths in bits; a cache that is absent has size 0.

    ``fma_ports`` counts the fused multiply-adds of ``vector_bits`` that can start in one cycle of one core. An
    ``in_order`` core waits where an instruction's operands are late, and starts no load beside a multiply-add.
    ``far_bytes`` are those that one core reads in a cycle, in order and asked for ahead, from beyond its second level.
    ``source`` says what to check the facts against and ``notes`` what was assumed; neither takes part in comparisons.
    ``clusters`` lists all cores of the chip, the ones that ``cores`` counts first; ``glibc`` is the oldest that the
    board's systems ship (empty: whatever the linker finds); ``bandwidth`` is that of the memory in bytes a second.
    ``memory_kind`` is "cache", or "scratchpad": kernels work on ``scratchpad_bytes`` of fast memory, and 2-D transfers
    between it and the memory run beside the core, which takes ``transfer_seconds`` to start one; ``hertz`` is its
    clock. ``fitted`` are constants of the cost models, which were measured and follow from no fact.

    ``weights_stay`` is about the model at hand, not the machine: False where its weights are more than the last-level
    cache keeps from one run to the next. ``in_halves`` is about the build: kernels compute in float16 what may be
    (``precision``), by transforms that multiply rounding errors by no more than ``half_growth``. The pipeline says so
    to what chooses kernels.
    """

    id: str
    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    vector_bits: int = 128
    vector_registers: int = 16
    fma_ports: int = 1
    fma_latency: int = 4
    in_order: bool = False
    far_bytes: int = 12
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 256 * 1024
    l3_bytes: int = 0
    line_bytes: int = 64
    cores: int = 1
    clusters: tuple[str, ...] = ()
    glibc: str = ""
    bandwidth: int = 0
    memory_kind: str = "cache"
    scratchpad_bytes: int = 0
    hertz: int = 0
    transfer_seconds: float = 0.0
    fitted: Fitted = field(default_factory=usual)
    weights_stay: bool = True
    in_halves: bool = False
    half_growth: float = inf
    native: bool = field(default=False, compare=False)
    source: str = field(default="", compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    def lanes(self, dtype: str = "float32") -> int:
        """Elements of ``dtype`` in one vector register (at least 1)."""
        return max(1, self.vector_bits // _bits(dtype))

    def channel_block(self, dtype: str) -> int:
        """Channels of a block of an image of ``dtype``: a vector of what kernels compute it in, at least float32; where
        some compute in float16, of that, so that float32 beside them lies in the same blocks."""
        if self.in_halves and dtype in ("float16", "float32"):
            return self.lanes("float16")
        return self.lanes(dtype if _bits(dtype) >= 32 else "float32")

    @property
    def has_halves(self) -> bool:
        """True if vectors of float16 are multiplied and added by an instruction."""
        arch = llvm.architecture(self.triple)
        found = llvm.features(arch, self.cpu, self.features)
        return arch == "aarch64" and "fullfp16" in found or arch == "x86_64" and "avx512fp16" in found

    @property
    def loads_factors(self) -> bool:
        """True if a factor that all lanes share is loaded into a register: x86 before AVX-512 has no multiply-add that
        repeats an element of memory."""
        return self.triple.startswith("x86_64") and self.vector_bits < 512

    @property
    def is_aarch64(self) -> bool:
        return self.triple.startswith("aarch64")

    @property
    def bits(self) -> int:
        """Bits of an address: 32 or 64."""
        return 8 * self.pointer_bytes

    @property
    def system(self) -> str:
        """What the library runs under: linux, windows, macos, or wasm for WebAssembly without any system."""
        return parse(self.triple).system

    @property
    def one_thread(self) -> bool:
        """True where runs compute in the thread that calls them, and in no other."""
        return self.system in ("wasm", "windows")

    @property
    def pointer_bytes(self) -> int:
        return 4 if self.triple.startswith(("armv", "arm-", "i386", "i686", "wasm32")) else 8

    @property
    def rounds(self) -> bool:
        """True if an instruction rounds the elements of a vector to whole numbers. 32-bit ARM calls libm for each."""
        return not self.triple.startswith("arm")

    @property
    def llvm_options(self) -> tuple[str, ...]:
        """LLVM's options for this machine, which are global to the process (compiler/codegen/llvm_options.py)."""
        return LESS_ANALYSIS + (NO_BLOCK_LOADS if llvm.architecture(self.triple) == "armv7l" else ())

    def tvm_of_loops(self) -> Any:
        """The TVM target that loops are lowered for. On RISC-V with vectors TVM would make loops over vectors of
        unknown length, and then fail on them; ours have a fixed one."""
        scalar = replace(self, cpu="generic-rv64", features=("+m", "+a", "+f", "+d", "+c"))
        return scalar.tvm() if llvm.architecture(self.triple) == "riscv64" else self.tvm()

    def tvm(self) -> Any:
        """The TVM target that generates code for this machine."""
        import tvm

        config: dict[str, int | list[str] | str] = {
            "kind": "llvm", "mtriple": normalised(self.triple), "mcpu": self.cpu, "opt-level": 3
        }  # fmt: skip
        if self.features:
            config["mattr"] = list(self.features)
        if abi := llvm.ABIS.get(llvm.architecture(self.triple)):
            config["mabi"] = abi
        if self.vector_bits:
            config["vector-width"] = self.vector_bits
        if self.llvm_options:
            config["cl-opt"] = list(self.llvm_options)
        return tvm.target.Target(config)


@cache
def _bits(dtype: str) -> int:
    digits = "".join(c for c in dtype if c.isdigit())
    return int(digits) if digits else 8


def normalised(triple: str) -> str:
    """``armv7l-linux-gnueabihf`` -> ``armv7l-unknown-linux-gnueabihf``, as LLVM's own tools would read it.

    The library takes the second part for the vendor without a word, and so misses the system and the ABI: floats would
    go to libm in integer registers.
    """
    if triple in LLVM_TRIPLES:
        return LLVM_TRIPLES[triple]
    first, *rest = triple.split("-")
    return "-".join([first, "unknown", *rest]) if rest and rest[0] == "linux" else triple
