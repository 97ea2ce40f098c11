"""The kernel's names of CPU features (/proc/cpuinfo) in LLVM's words."""

from __future__ import annotations

from collections.abc import Set

# LLVM's name differs from the kernel's; everything in _SAME is spelt alike.
_X86 = {
    "3dnowprefetch": "prfchw",
    "abm": "lzcnt",
    "amx_bf16": "amx-bf16",
    "amx_fp16": "amx-fp16",
    "amx_int8": "amx-int8",
    "amx_tile": "amx-tile",
    "avx512_4fmaps": "avx5124fmaps",
    "avx512_4vnniw": "avx5124vnniw",
    "avx512_bf16": "avx512bf16",
    "avx512_bitalg": "avx512bitalg",
    "avx512_fp16": "avx512fp16",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_vp2intersect": "avx512vp2intersect",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx_ifma": "avxifma",
    "avx_ne_convert": "avxneconvert",
    "avx_vnni": "avxvnni",
    "avx_vnni_int8": "avxvnniint8",
    "avx_vnni_int16": "avxvnniint16",
    "bmi1": "bmi",
    "lahf_lm": "sahf",
    "pclmulqdq": "pclmul",
    "pni": "sse3",
    "rdrand": "rdrnd",
    "sha_ni": "sha",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "user_shstk": "shstk",
}
# fmt: off
_X86_SAME = (
    "adx", "aes", "avx", "avx2", "avx512bw", "avx512cd", "avx512dq", "avx512er", "avx512f",
    "avx512ifma", "avx512pf", "avx512vbmi", "avx512vl", "bmi2", "cldemote", "clflushopt", "clwb",
    "clzero", "cmov", "cx16", "cx8", "enqcmd", "f16c", "fma", "fma4", "fsgsbase", "fsrm", "fxsr",
    "gfni", "invpcid", "mmx", "movbe", "movdir64b", "movdiri", "mwaitx", "pconfig", "pku", "popcnt",
    "prefetchi", "ptwrite", "rdpid", "rdpru", "rdseed", "rtm", "serialize", "sha512", "sm3", "sm4",
    "sse", "sse2", "sse4a", "ssse3", "tbm", "tsxldtrk", "uintr", "vaes", "vpclmulqdq", "waitpkg",
    "wbnoinvd", "xop", "xsave", "xsavec", "xsaveopt", "xsaves",
)
# fmt: on
_AARCH64 = {
    "aes": "aes",
    "asimd": "neon",
    "asimddp": "dotprod",
    "asimdfhm": "fp16fml",
    "asimdhp": "fullfp16",
    "asimdrdm": "rdm",
    "atomics": "lse",
    "bf16": "bf16",
    "crc32": "crc",
    "fcma": "complxnum",
    "flagm": "flagm",
    "i8mm": "i8mm",
    "jscvt": "jsconv",
    "lrcpc": "rcpc",
    "paca": "pauth",
    "sha2": "sha2",
    "sha3": "sha3",
    "sm4": "sm4",
    "sve": "sve",
    "sve2": "sve2",
}
_ARM = {
    "neon": "neon",
    "vfpv4": "vfp4",
    "crc32": "crc",
    "aes": "aes",
    "sha2": "sha2",
    "idiva": "hwdiv-arm",
    "idivt": "hwdiv",
}

# What belongs to the operating system or to a device, beside what computes: hypervisors hide it on processors that have
# it (protection keys, shadow stacks, user interrupts, work queues, transactions, tiles), and it tells a core badly.
_SYSTEM = frozenset(
    "amx-bf16 amx-fp16 amx-int8 amx-tile clwb cldemote enqcmd fsgsbase invpcid mwaitx pconfig pku prefetchi ptwrite"
    " rdpid rdpru rtm serialize shstk tsxldtrk uintr waitpkg wbnoinvd xsave xsavec xsaveopt xsaves".split()
)

# Of these nobody reads the kernel's flags: what LLVM calls the features that kernels compute with.
_WASM32 = ("simd128", "relaxed-simd", "nontrapping-fptoint", "bulk-memory", "sign-ext")
_RISCV64 = ("v", "zvfh", "zvl256b", "zvl512b", "zvl1024b", "zfa", "zfh", "zba", "zbb", "zbs")

_TABLES = {
    "x86_64": {**_X86, **{name: name for name in _X86_SAME}}, "aarch64": _AARCH64, "armv7l": _ARM,
    "riscv64": {name: name for name in _RISCV64}, "wasm32": {name: name for name in _WASM32},
}  # fmt: skip
DETECTED = ("x86_64", "aarch64", "armv7l")  # the machines whose flags Linux tells in these words

# What kernels may profit from beyond the chosen processor's own list. AMX is none of it: those who have it are listed.
_USEFUL = (
    "avx",
    "fma",
    "f16c",
    "gfni",
    "sse",
    "ssse",
    "vaes",
    "vpclmul",
    "bmi",
    "dotprod",
    "fullfp16",
    "fp16fml",
    "bf16",
    "i8mm",
    "vfp4",
)


def translate(arch: str, flags: set[str]) -> set[str]:
    """The kernel's flags as LLVM features; flags that are no business of code generation are dropped."""
    return {llvm for kernel, llvm in _TABLES[arch].items() if kernel in flags}


def visible(arch: str) -> set[str]:
    """The LLVM features whose presence the kernel's flags tell."""
    return set(_TABLES[arch].values())


def computing(features: Set[str]) -> Set[str]:
    """Those that hypervisors pass through, because programs compute with them."""
    return features - _SYSTEM


def useful(features: set[str]) -> set[str]:
    """Those worth switching on where the processor's name doesn't imply them."""
    return {f for f in features if f.startswith(_USEFUL)}
