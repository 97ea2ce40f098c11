"""From what a user writes to a :class:`Target`.

Five ways to name a machine:

- ``native``: this one, detected.
- a board or level that has a file in ``boards/``: ``raspberry-pi-4``, ``graviton3``, ``x86-64-v3`` ...
- spelt out, ``triple+cpu+features``: ``aarch64-linux-gnu+cortex-a76+dotprod,-aes``. A feature is switched on by its
  name and off by a leading minus; commas and pluses both separate.
- a file of yours in the same form, ``./my-board.toml``.
- one of the first three with other features, ``raspberry-pi-5+-dotprod``.
- TVM's old text, ``llvm -mtriple=... -mcpu=... -mattr=...``, which is read, with a note.
"""

from __future__ import annotations

import difflib
import shlex
from dataclasses import replace

from ..errors import TargetError
from . import detect, llvm
from .boards import Board, board_names, find_board, is_file, own_board
from .facts import assumed_bandwidth, core, known_cores, simd
from .systems import canonical, parse
from .target import Target


def resolve(text: str | Target) -> Target:
    """The target that ``text`` names, or is; raises :class:`TargetError` with the nearest names when there is none."""
    if isinstance(text, Target):
        return text
    if not isinstance(text, str):
        raise TargetError(f"a target is a name or a Target, not {type(text).__name__}")
    text = text.strip()
    if not text:
        raise TargetError(
            "the target is empty; use native, a name from `halotile targets list`, or triple+cpu+features"
        )
    if text.lower() in ("native", "host"):
        return detect.native()
    if text.split()[0] == "llvm":
        return _from_tvm_text(text)
    if "+" in text:
        first, *rest = text.split("+")
        base = _named(first)
        cpu, features = ("", rest) if base is not None else (rest[0], rest[1:])
        parts = [f.strip() for part in features for f in part.split(",")]
        if "" in parts:
            raise TargetError(f"target {text!r} has an empty feature; leave out the last plus or comma")
        return spell_out(text, first, cpu, parts) if base is None else switched(base, text, parts)
    board = own_board(text) if is_file(text) else find_board(text)
    if board is None:
        raise TargetError(unknown(text))
    return _checked(board, text)


def unknown(text: str) -> str:
    """The message for a name that no board has."""
    as_cpu = spelt_cpu(text)
    if as_cpu:
        return f"target {text!r} is a CPU, not a machine; write {as_cpu}, or take a board from `halotile targets list`"
    if "-" in text and _is_triple(text):
        return f"target {text!r} names no CPU; write {text}+cpu, such as {text}+generic"
    names = [*board_names(), "native"]
    near = difflib.get_close_matches(text.lower(), names, n=3, cutoff=0.6)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    return f"unknown target {text!r}; {hint}`halotile targets list` shows all; triple+cpu+features spells one out"


def _is_triple(text: str) -> bool:
    try:
        parse(text)
    except TargetError:
        return False
    return True


def precheck(text: str) -> None:
    """Refuses what can be refused without loading LLVM: a plain name that no board has, an unknown architecture."""
    text = text.strip()
    if not text or text.lower() in ("native", "host") or text.split()[0] == "llvm":
        return
    if "+" in text:
        first = text.split("+", 1)[0]
        if is_file(first):
            own_board(first)
        elif first.lower() not in ("native", "host") and find_board(first) is None:
            parse(first)
    elif is_file(text):
        own_board(text)
    elif find_board(text) is None:
        raise TargetError(unknown(text))


def spelt_cpu(text: str) -> str:
    """``cortex-a76`` -> ``aarch64-linux-gnu+cortex-a76``; empty for what is no CPU that we have facts about."""
    name = text.strip().lower().replace("_", "-")
    if name not in known_cores():
        return ""
    arm = name.startswith(("cortex", "neoverse"))
    triple = llvm.DEFAULT_TRIPLES["x86_64" if not arm else "armv7l" if name == "cortex-a7" else "aarch64"]
    return f"{triple}+{name}"


def _named(first: str) -> Target | None:
    """The machine that a name before a plus stands for; None for a triple."""
    if first.strip().lower() in ("native", "host"):
        return detect.native()
    board = own_board(first.strip()) if is_file(first) else find_board(first)
    return _checked(board, first) if board is not None else None


def _checked(board: Board, text: str) -> Target:
    """The board's target, whose processor and features LLVM knows; what is wrong in a file of the user's names it."""
    try:
        llvm.check(board.target.triple, board.target.cpu, board.target.features)
    except TargetError as error:
        if is_file(text):
            raise TargetError(f"board file {text.strip()}: {error}") from None
        raise
    return replace(board.target, triple=canonical(board.target.triple))


def switched(base: Target, name: str, features: list[str]) -> Target:
    """A machine with other features, and the vectors that these give; all else is as it was."""
    arch = llvm.architecture(base.triple)
    more = _switches(features)
    llvm.check(base.triple, base.cpu, more)
    switches = (*base.features, *more)
    before, after = (llvm.features(arch, base.cpu, s) for s in (base.features, switches))
    bits, registers = base.vector_bits, base.vector_registers
    if simd(arch, before) != simd(arch, after):
        bits, registers = simd(arch, after)
    return replace(
        base, id=name, features=switches, vector_bits=bits, vector_registers=registers, native=False
    )


def _switches(features: list[str]) -> tuple[str, ...]:
    return tuple(f if f[0] in "+-" else f"+{f}" for f in features)


def _promised(arch: str, cpu: str, switches: tuple[str, ...]) -> tuple[str, ...]:
    """``switches`` behind those that the system promises of every such machine and the processor's name does not."""
    if cpu not in llvm.cpus(arch):
        return switches
    own = llvm.features(arch, cpu)
    return (*(f"+{f}" for f in llvm.PROMISED.get(arch, ()) if f not in own), *switches)


def spell_out(name: str, triple: str, cpu: str, features: list[str]) -> Target:
    """A target from its parts; facts come from the core's table and, where it is silent, from the features."""
    arch = parse(triple).arch
    if not cpu and arch == "wasm32":
        cpu = "generic"
    if not cpu:
        raise TargetError(f"target {name!r} names no CPU; write triple+cpu, such as {triple}+generic")
    cpu = llvm.own_name(arch, cpu)
    switches = _promised(arch, cpu, _switches(features))
    llvm.check(triple, cpu, switches)
    on = llvm.features(arch, cpu, switches)
    if "prefer-256-bit" in on and "avx512f" in on:
        switches += ("-prefer-256-bit",)
    bits, registers = simd(arch, on)
    known = core(cpu)
    alone = parse(triple).system in ("wasm", "windows")
    return Target(
        id=name,
        triple=canonical(triple),
        cpu=cpu,
        features=switches,
        vector_bits=bits,
        vector_registers=registers,
        fma_ports=known.fma_ports,
        fma_latency=known.fma_latency,
        in_order=known.in_order,
        far_bytes=known.far_bytes,
        fitted=known.fitted,
        l1_bytes=known.l1_bytes,
        l2_bytes=known.l2_bytes,
        l3_bytes=known.l3_bytes,
        cores=1 if alone else 4,
        bandwidth=assumed_bandwidth(arch),
        source="spelt out; facts from the core's table",
        notes=() if alone else ("four cores assumed; --threads sets another number",),
    )


def _from_tvm_text(text: str) -> Target:
    """``llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon`` -> the same target spelt out."""
    options: dict[str, str] = {}
    try:
        words = shlex.split(text)[1:]
    except ValueError as error:
        raise TargetError(f"target {text!r} can't be read: {str(error).lower()}") from None
    for i, word in enumerate(words):
        key, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-"):
            if i == 0 or "=" in words[i - 1]:
                raise TargetError(f"target {text!r}: {word!r} is not an option")
            continue
        options[key] = value if equals else (words[i + 1] if i + 1 < len(words) else "")
        if not options[key]:
            raise TargetError(f"target {text!r}: {word} has no value")
    ignored = sorted(options.keys() - {"mtriple", "target", "mcpu", "mattr"})
    triple = options.get("mtriple") or options.get("target")
    cpu = options.get("mcpu", "")
    features = [f for f in options.get("mattr", "").split(",") if f]
    if not triple and cpu in ("", "native"):
        base = detect.native()
        if features:
            raise TargetError(f"target {text!r}: -mattr needs -mcpu; write native for this machine")
    else:
        triple = triple or llvm.DEFAULT_TRIPLES[_host_architecture()]
        base = spell_out(text, triple, cpu or "generic", features)
    new = (
        "native"
        if base.native
        else "+".join(filter(None, [base.triple, base.cpu, ",".join(f.lstrip("+") for f in features)]))
    )
    notes = [f"TVM's old target text was read as {new}; write that instead"]
    if ignored:
        notes.append(f"ignored {', '.join('-' + name for name in ignored)} of the old target text")
    return replace(base, id=new, notes=(*notes, *base.notes))


def _host_architecture() -> str:
    import platform

    return llvm.ARCHITECTURES.get(platform.machine().lower(), "x86_64")
