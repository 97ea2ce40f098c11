"""The question a library asks before its first run: has this processor the instructions it was compiled for?

Without it a library on the wrong machine dies of an illegal instruction somewhere inside a kernel. Asked are the
features that LLVM may use in our kernels on its own account, as far as C compilers and Linux can tell.

    processor_check(target) -> C text that defines ``static int processor_fits(void)``
"""

from __future__ import annotations

from ...targets.target import Target
from .toolchain import machine_of

_X86 = (
    "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "fma", "bmi", "bmi2", "avx512f", "avx512cd",
    "avx512bw", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bf16",
)  # fmt: skip

# LLVM's name -> (entry of the auxiliary vector, bit), from the kernel's <asm/hwcap.h>
_AARCH64 = {
    "lse": ("AT_HWCAP", 8),
    "fullfp16": ("AT_HWCAP", 10),
    "rdm": ("AT_HWCAP", 12),
    "dotprod": ("AT_HWCAP", 20),
    "sve": ("AT_HWCAP", 22),
    "fp16fml": ("AT_HWCAP", 23),
    "sve2": ("AT_HWCAP2", 1),
    "i8mm": ("AT_HWCAP2", 13),
    "bf16": ("AT_HWCAP2", 14),
}
_ARM = {"neon": ("AT_HWCAP", 12), "vfp4": ("AT_HWCAP", 16), "hwdiv-arm": ("AT_HWCAP", 17)}


def required_features(target: Target) -> tuple[str, ...]:
    """The features of the target that its processor can be asked for, in a fixed order."""
    machine = machine_of(target.triple)
    known = {"x86_64": _X86, "aarch64": tuple(_AARCH64), "arm": tuple(_ARM)}.get(machine, ())
    if not known:
        return ()
    from ...targets.llvm import architecture, features

    has = features(architecture(target.triple), target.cpu, tuple(target.features))
    return tuple(feature for feature in known if feature in has)


def processor_check(target: Target) -> str:
    """C text of ``processor_fits`` for a target: true when every required feature is there."""
    required = required_features(target)
    machine = machine_of(target.triple)
    if machine == "x86_64":
        terms = [f'__builtin_cpu_supports("{feature}")' for feature in required]
        return _function(terms, "__builtin_cpu_init();\n    ") if terms else _function([])
    table = _AARCH64 if machine == "aarch64" else _ARM
    terms = [f"(getauxval({table[feature][0]}) >> {table[feature][1]} & 1)" for feature in required]
    include = "#include <sys/auxv.h>\n\n" if terms else ""
    return include + _function(terms)


def _function(terms: list[str], before: str = "") -> str:
    condition = " &&\n           ".join(terms) or "1"
    return f"static int processor_fits(void) {{\n    {before}return {condition};\n}}\n"
