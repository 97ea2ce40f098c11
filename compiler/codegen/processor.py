"""The question a library asks before its first run: has this processor the instructions it was compiled for?

Without it a library on the wrong machine dies of an illegal instruction somewhere inside a kernel. Asked are the
features that LLVM may use in our kernels on its own account, as far as C compilers and Linux can tell.

    processor_check(target, matrix) -> C text that defines ``static int processor_fits(void)``
"""

from __future__ import annotations

from collections.abc import Sequence

from ...targets.target import Target
from .toolchain import machine_of

# LLVM's name -> (leaf and subleaf of CPUID, register, bit). __builtin_cpu_supports needs a part of the C compiler's own
# library, which zig leaves empty: it then says no to everything.
_A, _B, _C, _D = range(4)
X86 = {
    "sse3": (1, 0, _C, 0),
    "ssse3": (1, 0, _C, 9),
    "fma": (1, 0, _C, 12),
    "sse4.1": (1, 0, _C, 19),
    "sse4.2": (1, 0, _C, 20),
    "movbe": (1, 0, _C, 22),
    "popcnt": (1, 0, _C, 23),
    "avx": (1, 0, _C, 28),
    "f16c": (1, 0, _C, 29),
    "bmi": (7, 0, _B, 3),
    "avx2": (7, 0, _B, 5),
    "bmi2": (7, 0, _B, 8),
    "avx512f": (7, 0, _B, 16),
    "avx512dq": (7, 0, _B, 17),
    "avx512ifma": (7, 0, _B, 21),
    "avx512cd": (7, 0, _B, 28),
    "avx512bw": (7, 0, _B, 30),
    "avx512vl": (7, 0, _B, 31),
    "avx512vbmi": (7, 0, _C, 1),
    "avx512vbmi2": (7, 0, _C, 6),
    "gfni": (7, 0, _C, 8),
    "avx512vnni": (7, 0, _C, 11),
    "avx512bitalg": (7, 0, _C, 12),
    "avx512vpopcntdq": (7, 0, _C, 14),
    "avx512fp16": (7, 0, _D, 23),
    "avxvnni": (7, 1, _A, 4),
    "avx512bf16": (7, 1, _A, 5),
    "amx-bf16": (7, 0, _D, 22),
    "amx-tile": (7, 0, _D, 24),
    "amx-int8": (7, 0, _D, 25),
    "lzcnt": (0x80000001, 0, _C, 5),
}
# bits of XCR0: what the system keeps of the registers of vectors and of the matrix unit
_YMM, _ZMM, _TILES = 0x06, 0xE6, 0x60000

_ASK_X86 = """#include <cpuid.h>

static unsigned has(unsigned leaf, unsigned subleaf, int which, int bit) {
    unsigned r[4];
    return __get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3]) ? r[which] >> bit & 1 : 0;
}

"""
_KEPT_X86 = """static int kept(unsigned wanted) {
    unsigned low, high;
    if (!has(1, 0, 2, 27)) {
        return 0;
    }
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & wanted) == wanted;
}

"""

# Linux, from 5.16 on, keeps the matrix unit from a process until it asks, and from one with signal stacks too small for
# its registers: arch_prctl(ARCH_REQ_XCOMP_PERM, 18). Strict C has no declaration of syscall.
_GRANTED_X86 = """long syscall(long number, ...);

static int granted(void) { return syscall(158, 0x1023, 18) == 0; }

"""

# LLVM's name -> what macOS calls it, from Apple's page on sysctlbyname
_APPLE = {
    "lse": "FEAT_LSE", "fullfp16": "FEAT_FP16", "rdm": "FEAT_RDM", "dotprod": "FEAT_DotProd", "fp16fml": "FEAT_FHM",
    "i8mm": "FEAT_I8MM", "bf16": "FEAT_BF16",
}  # fmt: skip
_ASK_APPLE = """#include <stddef.h>

int sysctlbyname(const char *name, void *old, size_t *bytes, void *wanted, size_t more);

static int told(const char *name) {
    int value = 0;
    size_t bytes = sizeof value;
    return sysctlbyname(name, &value, &bytes, NULL, 0) == 0 && value;
}

"""

_AUXILIARY = "#include <sys/auxv.h>\n\n"

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
_RISCV64 = {"v": ("AT_HWCAP", 21)}  # a bit for each letter
_ARM = {"neon": ("AT_HWCAP", 12), "vfp4": ("AT_HWCAP", 16), "hwdiv-arm": ("AT_HWCAP", 17)}

_TABLES = {"aarch64": _AARCH64, "arm": _ARM, "riscv64": _RISCV64}

ASKED = frozenset((*X86, *_AARCH64, *_ARM, *_RISCV64))  # every feature that some processor is asked for


def required_features(target: Target, matrix: bool = False) -> tuple[str, ...]:
    """The features of the target that its processor can be asked for, in a fixed order. Those of the matrix unit count
    if kernels use it (``matrix``): nothing else in a library does."""
    machine = machine_of(target.triple)
    known: tuple[str, ...] = tuple(X86) if machine == "x86_64" else tuple(_TABLES.get(machine, ()))
    if not known:
        return ()
    from ...targets.llvm import architecture, features

    has = features(architecture(target.triple), target.cpu, tuple(target.features))
    if target.system == "macos":
        known = tuple(_APPLE)
    return tuple(f for f in known if f in has and (matrix or not f.startswith("amx")))


def processor_check(target: Target, matrix: bool = False) -> str:
    """C text of ``processor_fits`` for a target: true when every required feature is there, and, for kernels on the
    matrix unit, when the system grants that to the process."""
    return processor_checks([("processor_fits", target, matrix)])


def processor_checks(wanted: Sequence[tuple[str, Target, bool]]) -> str:
    """C text of a function for each (name, target, matrix), as :func:`processor_check` has it for one."""
    needs: list[str] = []
    functions = []
    for name, target, matrix in wanted:
        required = required_features(target, matrix)
        machine = machine_of(target.triple)
        if target.system == "macos":
            more, terms = ([_ASK_APPLE] if required else []), [f'told("hw.optional.arm.{_APPLE[f]}")' for f in required]
        else:
            more, terms = _x86_terms(required) if machine == "x86_64" else _told_terms(required, machine)
        needs += [text for text in more if text not in needs]
        functions.append(_function(name, terms))
    order = (_ASK_APPLE, _AUXILIARY, _ASK_X86, _KEPT_X86, _GRANTED_X86)
    return "".join([text for text in order if text in needs] + ["\n".join(functions)])


def _told_terms(required: tuple[str, ...], machine: str) -> tuple[list[str], list[str]]:
    table = _TABLES.get(machine, {})
    terms = [f"(getauxval({table[feature][0]}) >> {table[feature][1]} & 1)" for feature in required]
    return [_AUXILIARY] if terms else [], terms


def _x86_terms(required: tuple[str, ...]) -> tuple[list[str], list[str]]:
    terms = ["has({:#x}, {}, {}, {})".format(*X86[feature]) for feature in required]
    kept = _ZMM if "avx512f" in required else _YMM if "avx" in required else 0
    if not kept:
        return [_ASK_X86] if terms else [], terms
    if "amx-tile" in required:
        return [_ASK_X86, _KEPT_X86, _GRANTED_X86], [*terms, f"kept({kept | _TILES:#x})", "granted()"]
    return [_ASK_X86, _KEPT_X86], [*terms, f"kept({kept:#x})"]


def _function(name: str, terms: list[str]) -> str:
    condition = " &&\n           ".join(terms) or "1"
    return f"static int {name}(void) {{\n    return {condition};\n}}\n"
