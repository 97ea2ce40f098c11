"""This machine as a target: what the kernel says it has, never what a processor's name promises.

A hypervisor may hide instructions or show another model's number. The number is believed where the second-level cache
is that model's and the flags have nothing that it lacks: instructions are hidden, never made up. Else the processor is
chosen by its features: the one of the same vendor whose feature list is nearest to /proc/cpuinfo's flags, first in what
computes, then in its second-level cache, last in what belongs to the operating system. What that one has and the flags
lack is switched off; vector instructions it lacks and the flags have are switched on.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from ..errors import TargetError
from . import flags as kernel_flags
from . import llvm
from .facts import assumed_bandwidth, core, known_cores, simd
from .quota import processors_granted
from .target import Target

_CPU = Path("/sys/devices/system/cpu")
_IDENTITY = frozenset(("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU part",
                       "CPU implementer", "CPU architecture", "CPU variant", "CPU revision"))  # fmt: skip
_ASK_FOR_TILES = (158, 0x1023, 18)  # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)


@dataclass(frozen=True)
class Machine:
    """What was read from the running system; a test may write one by hand."""

    arch: str
    vendor: str
    flags: frozenset[str]
    llvm_cpu: str
    caches: tuple[tuple[int, int, int], ...]  # (level, bytes, bytes of a line), data and unified ones
    cores: int
    grants_tiles: bool = False  # the system lets this process use the registers of the matrix unit (AMX)


def native() -> Target:
    """The machine that runs this process."""
    return describe(read_machine())


def read_machine() -> Machine:
    """Reads /proc/cpuinfo, the cache descriptions in sysfs and the processors this process may use."""
    arch = llvm.ARCHITECTURES.get(platform.machine().lower())
    if arch not in kernel_flags.DETECTED or platform.system() != "Linux":
        raise TargetError(
            f"the native target can't be detected on {platform.system()} {platform.machine()}; name one with --target"
        )
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TargetError(f"the native target can't be detected: {error}; name one with --target") from None
    vendor, flags = parse_cpuinfo(text)
    cpus = sorted(os.sched_getaffinity(0))
    first = _CPU / f"cpu{cpus[0]}"
    grants = "amx_tile" in flags and ask_for_tiles()
    caches, cores = read_caches(first / "cache"), physical_cores(cpus)
    return Machine(arch, vendor, flags, llvm.host_cpu(), caches, cores, grants)


def fingerprint() -> str:
    """All that :func:`native` and :func:`runs_here` depend on but LLVM itself, as text. LLVM's guess of the processor
    goes by what CPUID says, as /proc/cpuinfo does."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    flags = parse_cpuinfo(text)[1]
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    model = sorted({line for line in text.splitlines() if line.partition(":")[0].strip() in _IDENTITY})
    facts = (platform.system(), platform.machine(), model, sorted(flags), read_caches(_CPU / f"cpu{cpus[0]}" / "cache"),
             physical_cores(cpus), "amx_tile" in flags and ask_for_tiles())  # fmt: skip
    return repr(facts)


def ask_for_tiles() -> bool:
    """Asks Linux (5.16 and later) to let this process use the matrix unit's registers, which it keeps from programs
    whose signal stacks may be too small for them. Libraries ask for themselves."""
    try:
        return ctypes.CDLL(None).syscall(*_ASK_FOR_TILES) == 0
    except (OSError, AttributeError):
        return False


def describe(machine: Machine) -> Target:
    """Facts and code generation switches of ``machine``."""
    arch = machine.arch
    has = kernel_flags.translate(arch, set(machine.flags))
    if "sse4.2" in has:
        has.add("crc32")
    cpu = nearest_cpu(machine, has)
    own = llvm.features(arch, cpu)
    lacks = sorted((own & kernel_flags.visible(arch)) - has)
    extra = sorted(kernel_flags.useful(has & llvm.known_features(arch)) - own)
    kept = ["amx-tile"] if "amx-tile" in own - set(lacks) and not machine.grants_tiles else []
    # without tiles the matrix unit's other features are off too
    switches = [f"-{f}" for f in [*lacks, *kept]] + [f"+{f}" for f in extra]
    # LLVM shuns 512-bit registers on cores whose clock once dropped for them; our vectors are chosen by hand.
    if "prefer-256-bit" in own and "avx512f" in has:
        switches.append("-prefer-256-bit")
    bits, registers = simd(arch, llvm.features(arch, cpu, tuple(switches)))
    known = core(cpu)
    notes = [f"without {', '.join(lacks)}: not among this machine's flags"] if lacks else []
    if kept:
        notes.append("without the matrix unit (AMX): the system keeps it from this process")
    if cpu != machine.llvm_cpu:
        notes.append(f"LLVM takes this machine for {machine.llvm_cpu}; its flags fit {cpu} better")
    cache = {level: size for level, size, _ in machine.caches}
    return Target(
        id=cpu,
        triple=llvm.DEFAULT_TRIPLES[arch],
        cpu=cpu,
        features=tuple(switches),
        vector_bits=bits,
        vector_registers=registers,
        fma_ports=known.fma_ports,
        fma_latency=known.fma_latency,
        in_order=known.in_order,
        far_bytes=known.far_bytes,
        fitted=known.fitted,
        l1_bytes=cache.get(1, known.l1_bytes),
        l2_bytes=cache.get(2, known.l2_bytes),
        l3_bytes=cache.get(3, 0),
        line_bytes=machine.caches[0][2] if machine.caches else 64,
        cores=machine.cores,
        bandwidth=assumed_bandwidth(arch),
        native=True,
        source="/proc/cpuinfo, /sys/devices/system/cpu, LLVM's processor lists",
        notes=tuple(notes),
    )


def nearest_cpu(machine: Machine, has: set[str]) -> str:
    """LLVM's own guess where the machine can be that processor; else the one whose features are nearest to ``has``;
    what it has and the machine lacks counts double.

    Features that compute come before all others, which hypervisors hide: a server without protection keys, user
    interrupts and the like is nearer to a client core in number, and that one has half the multiply-add units. Among
    processors that compute alike the one whose second-level cache is nearest in size is taken, then the one nearest in
    the rest. Ties go to LLVM's own guess, then to the first name, so that the choice is deterministic.
    """
    names = {
        name
        for name in known_cores()
        if name in llvm.cpus(machine.arch) and _vendor(name) in ("", machine.vendor)
    }
    if machine.llvm_cpu in llvm.cpus(machine.arch) and machine.llvm_cpu != "generic":
        names.add(machine.llvm_cpu)
        if machine.arch != "x86_64":
            return machine.llvm_cpu
    if machine.arch != "x86_64" or not names:
        return "generic"
    visible = kernel_flags.visible(machine.arch)
    second = next((size for level, size, _ in machine.caches if level == 2), None)

    def distance(own: Set[str], there: Set[str]) -> int:
        return 2 * len(own - there) + len(there - own)

    def order(name: str) -> tuple[int, float, int, bool, str]:
        own = llvm.features(machine.arch, name) & visible
        computing = distance(kernel_flags.computing(own), kernel_flags.computing(has))
        other_cache = abs(math.log2(core(name).l2_bytes / second)) if second else 0.0
        return computing, other_cache, distance(own, has), name != machine.llvm_cpu, name

    if machine.llvm_cpu in known_cores() and machine.llvm_cpu in names and core(machine.llvm_cpu).l2_bytes == second:
        own = llvm.features(machine.arch, machine.llvm_cpu)
        if kernel_flags.computing(has & visible) <= kernel_flags.computing(own):
            return machine.llvm_cpu
    return min(names, key=order)


def parse_cpuinfo(text: str) -> tuple[str, frozenset[str]]:
    """Vendor and the flags that *every* processor in the listing has."""
    vendor, common = "", None
    for line in text.splitlines():
        key, _, value = line.partition(":")
        key = key.strip()
        if key == "vendor_id" and not vendor:
            vendor = value.strip()
        elif key in ("flags", "Features"):
            common = set(value.split()) if common is None else common & set(value.split())
    return vendor, frozenset(common or ())


def read_caches(folder: Path) -> tuple[tuple[int, int, int], ...]:
    """(level, bytes, bytes of a line) of each data or unified cache that sysfs lists for one processor."""
    found = []
    for index in sorted(folder.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
            line = int((index / "coherency_line_size").read_text())
        except (OSError, ValueError):
            continue  # some kernels list a cache without its size; the processor's defaults stand in
        if kind in ("Data", "Unified"):
            scale = {"K": 1024, "M": 1024**2}.get(text[-1:], 1)
            found.append((level, int(text.rstrip("KM")) * scale, line))
    return tuple(sorted(found))


def physical_cores(cpus: list[int]) -> int:
    """Physical cores behind the processors this process may use, within a container's quota."""
    groups = set()
    for cpu in cpus:
        try:
            groups.add((_CPU / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip())
        except OSError:
            groups.add(str(cpu))
    return max(1, min(len(groups), processors_granted()))


def _vendor(name: str) -> str:
    """The vendor that makes the core, in CPUID's words; empty for the psABI levels, which nobody makes."""
    if name.startswith("x86-64"):
        return ""
    return "AuthenticAMD" if name.startswith("znver") else "GenuineIntel"


def runs_here(target: Target) -> bool:
    """Whether this machine can run code that was made for ``target``: it has what computes (our code has no use for
    what is the operating system's), and grants the matrix unit if there is one in the target."""
    if target.native:
        return True
    try:
        machine = read_machine()
    except TargetError:
        return False
    if llvm.architecture(target.triple) != machine.arch:
        return False
    needs = llvm.features(machine.arch, target.cpu, target.features) & kernel_flags.visible(machine.arch)
    if "amx-tile" in needs and not machine.grants_tiles:
        return False
    return kernel_flags.computing(needs) <= kernel_flags.translate(machine.arch, set(machine.flags)) | {"crc32"}
