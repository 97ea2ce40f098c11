"""Cycles of what ran: those of each block by llvm-mca in its steady state, times how often it ran.

All data is in the first level and every branch is foretold: what a core takes at least, not what it will take.
Instructions that the analyser refuses (of the system) are left out; blocks beyond COVERED of all instructions take as
long as the others do in the mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...errors import ToolchainError
from ...targets.target import Target
from ..mca import cycles, own_rate
from .counts import NOTHING, Block, Counts

COVERED = 0.998  # of the instructions
KNOWN = 0.9  # of the multiply-adds that a processor starts in a cycle, below which a model is of another one
AT_ONCE = 64  # blocks that the analyser gets in one file
REFUSED = ("svc", "brk", "hlt", "udf", "hint", "mrs", "msr", "isb", "dmb", "dsb", "dc", "ic", "sys")


def block_cycles(counts: Counts, texts: Mapping[int, str], target: Target, mca: str) -> dict[Block, float]:
    """Cycles of one run of each block, of as many as COVERED asks for; the others are not in it."""
    chosen: list[Block] = []
    seen = 0
    for block in sorted(counts.blocks, key=lambda b: -b.executed):
        if seen >= COVERED * counts.executed:
            break
        seen += block.executed
        chosen.append(block)
    bodies: dict[bytes, list[str]] = {b.code: list(lines_of(b, texts)) for b in chosen}
    taken: dict[bytes, float] = {}
    order = [code for code, body in bodies.items() if body]
    for first in range(0, len(order), AT_ONCE):
        part = order[first : first + AT_ONCE]
        taken.update(zip(part, _cycles([bodies[code] for code in part], target, mca)))
    return {b: taken.get(b.code, 0.0) for b in chosen}


def doubt(target: Target, mca: str) -> str:
    """What to say where the analyser's model multiplies less often than the processor: older ones take it for another,
    so that cycles are too many, and of some instructions more than of others. Empty where it does not."""
    rate = own_rate(target, mca)
    if rate >= KNOWN * target.fma_ports:
        return ""
    return (
        f"{mca} starts {rate:g} multiply-adds a cycle on {target.cpu}, which starts {target.fma_ports}: its cycles are "
        "no measure; install a newer LLVM"
    )


def total_cycles(counts: Counts, each: Mapping[Block, float]) -> float:
    """Cycles of all that ran."""
    covered = sum(b.executed for b in each)
    return sum(b.runs * taken for b, taken in each.items()) * counts.executed / covered if covered else 0.0


def lines_of(block: Block, texts: Mapping[int, str]) -> Iterator[str]:
    """A block as the analyser reads it."""
    for word in block.words:
        text = texts[word]
        if text != NOTHING and not text.startswith(REFUSED):
            yield text


def _cycles(bodies: Sequence[Sequence[str]], target: Target, mca: str) -> list[float]:
    """Of each body; where the analyser refuses one, half a cycle for each of its instructions."""
    try:
        return cycles(bodies, target, mca)
    except ToolchainError:
        if len(bodies) == 1:
            return [len(bodies[0]) / 2]
    half = len(bodies) // 2
    return _cycles(bodies[:half], target, mca) + _cycles(bodies[half:], target, mca)
