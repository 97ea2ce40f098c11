"""What every segment of the program would take as one tile group: bytes and cycles, without making its plan.

For one last group, members are added from the last one back, in all shapes at once: every number is an array with an
entry for each shape. Rows are straight lines (see linear_reach.py), so that a steady stripe stands for all of them, and
each member costs a handful of operations:

    end      the rows that a member has made lie this far beyond its share of the stripes so far
    start    where the rows that it makes in a stripe begin, relative to the stripe's end
    held     what its window holds: from the first row that a reader needs to the last one made
    first    where a band's first row lies, relative to the band's own
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....schedules.conv.box_cost import MemberCost, Numbers
from ....schedules.tiled.box_support import box_alignment
from ....schedules.tiled.core_sharing import by_rows
from ....schedules.words.group import Group, Value
from ..plan.concat_parts import CONCAT, joins_blocks
from ..plan.form import RING, largest
from ..plan.overwrite_inputs import alike
from ..plan.windows import KEPT, WORTH
from .lines import Chain, Line, merged
from .member_cost import joined
from .model import SearchModel, Segment, Shape

LONGEST = 32  # members of a tile group


@dataclass(frozen=True)
class Grown:
    """Groups ``first`` to ``last`` as one tile group in each of ``shapes``; every number is an array with an entry for
    each shape. ``able``: whether the shape is possible; ``scratch`` bytes of all workers; predicted ``cycles``;
    ``taken`` bytes of inputs that its results overwrite."""

    first: int
    last: int
    shapes: Sequence[Shape]
    able: Numbers
    scratch: Numbers
    cycles: Numbers
    taken: Numbers

    def segment(self, at: int) -> Segment:
        """The segment in shape number ``at``."""
        numbers = float(self.scratch[at]), float(self.cycles[at])
        return Segment(self.first, self.last, self.shapes[at], *numbers, taken=float(self.taken[at]))


def segments(model: SearchModel, last: int, shapes: Sequence[Shape]) -> Iterator[Grown]:
    """All tile groups that end with group ``last``, in ``shapes``, from two members on as far back as they go."""
    grown = _Growing(model, last, shapes)
    for first in range(last, max(-1, last - LONGEST), -1):
        if model.program.refusal(first) is not None or not grown.add(first):
            return
        if first < last:
            yield grown.at(first)


def segments_of(model: SearchModel, first: int, last: int, shapes: Sequence[Shape]) -> list[Segment | None]:
    """The segment of groups ``first`` to ``last`` in each of ``shapes``; None where it is impossible."""
    grown = _Growing(model, last, shapes)
    if not all(grown.add(index) for index in range(last, first - 1, -1)):
        return [None] * len(shapes)
    found = grown.at(first)
    return [found.segment(i) if able else None for i, able in enumerate(found.able)]


class _Growing:
    def __init__(self, model: SearchModel, last: int, shapes: Sequence[Shape]) -> None:
        self.model, self.last, self.shapes = model, last, shapes
        self.fitted = model.target.fitted.kernels
        self.program = model.program
        output = self.program.groups[last].outputs[-1]
        self.height, self.width = output.shape[2:4]
        self.rows = np.array([float(s.rows) for s in shapes])
        self.columns = np.array([float(min(s.columns, self.width)) for s in shapes])
        self.units = np.array([s.units for s in shapes])
        self.rings = np.array([s.mode == RING for s in shapes])
        self.mixed = any(s.others for s in shapes)  # some have members in both modes
        self.stripes = np.ceil(self.height / self.rows)
        self.bands = np.maximum(1.0, np.minimum(np.array([float(s.bands) for s in shapes]), self.stripes))
        bands = [largest(self.height, shape.rows, int(b)) for shape, b in zip(shapes, self.bands)]
        self.share = self.bands * np.array(bands) / self.height  # of the largest band, in whole ones
        self.stripes = self.bands * np.ceil(self.height / self.bands / self.rows)
        self.blocks = np.ceil(self.width / self.columns)
        self.sharing = np.array([float(s.sharing) for s in shapes])
        self.saves = np.array([s.saves for s in shapes])
        self.saving = bool(self.saves.any())
        limits = {s.room for s in shapes if s.room is not None}
        self.limits = {room: np.array([s.room == room for s in shapes]) for room in limits}
        self.copies = np.minimum(model.threads, self.bands * self.blocks)  # of the windows
        self.workers = np.minimum(model.threads, self.copies * self.sharing)
        self.able = np.ones(len(shapes), bool)
        self.none = np.zeros(len(shapes))
        self.members: dict[int, Line] = {}
        self.arithmetic = self.calls = self.exposed = self.none
        self.passing: dict[int, Numbers] = {}  # bytes of the windows that keep nothing from stripe to stripe
        self.most = self.none  # bytes of the largest scratch of a member's own
        self.kept = self.shared = self.none  # bytes of windows that keep rows, and the most of others at a time
        self.saved = self.none  # bytes of windows that keep rows, where rings save these
        self.living: dict[int, Numbers] = {}  # of the others, by the step of a stripe in which they live
        self.joint: dict[int, Numbers] = {}  # the same where cores share, by the first of members that run on
        self.chains: dict[int, Chain] = {}  # of members that write over what another made, by the first
        self.copying: dict[int, tuple[Numbers, ...]] = {}  # what concatenations add to arithmetic and the like
        self.copied = self.none  # bytes of saved rows that come and go
        self.near = self.far = self.none  # bytes of rows that move up in their rings; of reads by later members
        self.moved = self.none  # cycles of what neighbours read
        self.anew = self.stored = self.none  # bytes written to windows, and cycles where their lines are near
        self.weights, self.streamed = 0, self.none  # bytes of weights, and of their reads
        self.outside: dict[tuple[Value, bool], Numbers] = {}  # bytes read of each value from outside, and whether by a
        self.written: dict[bool, Numbers] = {}  # member that only moves them; those written of whole ones
        self.roots: set[Value] = set()
        self.inside: set[Value] = set()

    def add(self, index: int) -> bool:
        """Adds the group before the first member; False if it can't be one in any of the shapes."""
        group = self.program.groups[index]
        if index != self.last and not self.program.reads(index, self.last):
            return False
        if any(self.program.places.root(v) in self.roots for v in group.outputs if v in self.program.shared):
            return False
        member = self._member(index)
        if member is None or not self.able.any():
            return False
        self.members[index] = member
        self.inside.update(group.outputs)
        for value in group.inputs:
            if value in self.program.shared and value not in self.inside:
                self.roots.add(self.program.places.root(value))
        self._count(index, member)
        return True

    def _ringed(self, group: Group) -> Numbers:
        """Which shapes keep the outputs of ``group`` in rings."""
        if not self.mixed:
            return self.rings
        others = [not s.others.isdisjoint(group.outputs) for s in self.shapes]
        return self.rings ^ np.array(others)

    def _member(self, index: int) -> Line | None:
        group = self.program.groups[index]
        if index == self.last:
            zero = self.none
            return Line(1.0, 1.0, zero, -self.rows, zero, zero, self.columns, whole=True, fresh=self.rows)
        found: Line | None = None
        whole = False
        for value in group.outputs:
            readers = self.program.readers.get(value, [])
            whole = whole or value in self.program.outputs or value in self.program.shared
            whole = whole or any(r > self.last for r in readers) or not readers
            for reader in readers:
                if reader > self.last:
                    continue
                both = self.model.reach(reader, value)
                if both is None:
                    return None
                found = merged(found, self.members[reader], *both)
                if found is None:
                    return None
        if found is None:
            return None
        found.right = np.minimum(found.right, found.left + (group.outputs[0].shape[3] + 4))
        if whole:
            self._whole(found)
        else:
            self._window(index, found)
        return found

    def _whole(self, member: Line) -> None:
        """Bands and blocks must not read each other's parts of what lies whole."""
        block = self.columns * member.column_scale
        self.able &= ~((self.bands > 1) & (member.first < member.end))
        self.able &= ~((self.blocks > 1) & ((member.left < 0) | (member.right > block + 1e-6)))
        member.whole = True
        member.fresh = member.row_scale * self.rows
        member.start = member.end - member.fresh

    def _window(self, index: int, member: Line) -> None:
        """What the member makes in a stripe, and the bytes of its window."""
        group = self.program.groups[index]
        rows, ring = float(group.outputs[0].shape[2]), self._ringed(group)
        step = member.row_scale * self.rows
        unit = np.where(self.units, self._costs(index, lambda c: self.model.rows(index, c)), box_alignment(group)[0])
        paced = np.where(unit > 1, unit * np.maximum(1, np.rint(step / unit)), step)
        member.fresh = np.minimum(rows, np.where(ring, paced, member.end - member.start))
        steps = np.rint(step).astype(np.int64)
        least = np.where(np.abs(step - steps) < 1e-6, np.gcd(unit, steps), 1)
        needed = np.ceil(np.floor(member.end + 1e-6) / least) * least  # rows appear up to multiples of ``least`` ...
        # ... or of ``unit``, in the worst of stripes
        member.end = np.where(ring, needed + unit - least, member.end)
        held = np.minimum(member.end - member.start, rows + 4)
        part = member.part = self._part(index)
        row = (member.right - member.left) * sum(self.model.size(v)[1] for v in group.outputs)
        member.window = held * row
        keeps = ring & (held > step + 1e-6) & ~part
        self.kept = self.kept + np.where(keeps, member.window, 0)
        member.low, member.high = member.start, member.end
        moved = np.maximum(0.0, held - member.fresh) * row
        self.near = self.near + np.where(keeps, 2 * moved * self.stripes * self.blocks, 0)
        self.passing[index] = np.where(keeps, 0, member.window)
        if self.saving:
            self._saving(index, member, keeps, np.maximum(0.0, held - member.fresh), held, row)
        if part.any():
            self._joins(index, part)
        member.start = np.where(ring, needed - step, member.start)

    def _part(self, index: int) -> Numbers:
        """Where group ``index`` computes in the window of the concatenation that reads it."""
        group = self.program.groups[index]
        readers = self.program.readers.get(group.outputs[0], [])
        whole = self.members.get(readers[0]) if len(readers) == 1 and len(group.outputs) == 1 else None
        if whole is None or whole.whole or group.operators == (CONCAT,):
            return np.zeros(len(self.shapes), bool)
        reader = self.program.groups[readers[0]]
        able = joins_blocks(reader, self.program.layouts)
        return able & (self._ringed(reader) | ~self._ringed(group))

    def _joins(self, index: int, part: Numbers) -> None:
        """Counts no window of group ``index`` in these shapes, but that of its concatenation from there on, which does
        not copy it."""
        value = self.program.groups[index].outputs[0]
        (whole,) = self.program.readers[value]
        share = np.where(part, self.model.size(value)[1] / self.model.size(self.program.groups[whole].outputs[0])[1], 0)
        work, exposed, stored, made = self.copying[whole]
        self.arithmetic, self.exposed = self.arithmetic - share * work, self.exposed - share * exposed
        self.stored, self.anew = self.stored - share * stored, self.anew - share * made
        self.passing[index] = np.where(part, self.passing[whole], self.passing[index])
        if not self.saving:
            return
        own = self.chains.pop(index)
        self._live(own, part, -1)
        chain = self.chains.get(whole)
        if chain is not None:
            self._live(chain, np.ones(len(self.shapes), bool), -1)
            steps = {s: chain.steps.get(s, part) for s in range(index, max(chain.steps) + 1)}
            self.chains[whole] = replace(chain, steps=steps)
            self._live(self.chains[whole], np.ones(len(self.shapes), bool), 1)

    def _saving(self, index: int, member: Line, keeps: Numbers, kept: Numbers, held: Numbers, row: Numbers) -> None:
        """The same where rings save the ``kept`` rows of all that they have ``held``."""
        saves = keeps & (kept <= KEPT * held)
        self.saved = self.saved + np.where(saves, kept * row, np.where(keeps, member.window, 0))
        self.copied = self.copied + np.where(saves, 2 * kept * row * self.stripes * self.blocks, 0)
        calls = 2 * self.fitted.call * self.stripes * self.blocks * self.sharing
        self.calls = self.calls + np.where(saves & self.saves, calls, 0)
        readers = [r for v in self.program.groups[index].outputs for r in self.program.readers.get(v, ())]
        window = np.where(keeps & ~saves, 0, member.window)
        steps = range(index, max((r for r in readers if r <= self.last), default=index) + 1)
        able = (saves | ~keeps) & (self.columns >= self.width)
        member.own = able
        chain = Chain(dict.fromkeys(steps, np.ones(len(self.shapes), bool)), window, member.low, member.high)
        over = next((r for r in readers if r <= self.last and self._takes(index, r).any()), None)
        if over is not None:
            able = member.own & self.members[over].own & self._takes(index, over)
            other = self.chains.pop(over)
            self._live(other, able, -1)
            chain = chain.with_others(other, able, row)
        self._live(chain, np.ones(len(self.shapes), bool), 1)
        self.chains[index] = chain

    def _takes(self, index: int, reader: int) -> Numbers:
        """True where ``reader``, the last of them, writes over what group ``index`` made."""
        value = self.program.groups[index].outputs[0]
        last = max(r for r in self.program.readers[value] if r <= self.last)
        if reader != last or reader not in self.chains:
            return np.zeros(len(self.shapes), bool)
        taken = {n: self.model.taken(reader, self.width, n) is value for n in {s.sharing for s in self.shapes}}
        return np.array([taken[s.sharing] for s in self.shapes])

    def _live(self, chain: Chain, able: Numbers, sign: int) -> None:
        """Counts the bytes of ``chain``'s window, or no longer, in the ``able`` shapes."""
        runs: dict[int, Numbers] = {}
        for step, own in chain.steps.items():
            amount = np.where(able & own & (self.sharing == 1), sign * chain.window, 0)
            self.living[step] = self.living.get(step, self.none) + amount
            run = self.model.joint(step)
            runs[run] = runs.get(run, False) | own
        for run, own in runs.items():
            amount = np.where(able & own & (self.sharing > 1), sign * chain.window, 0)
            self.joint[run] = self.joint.get(run, self.none) + amount

    def _count(self, index: int, member: Line) -> None:
        """Work, traffic and bytes of one member, over all tasks."""
        group, rates = self.program.groups[index], self.model.rates
        weights = self._costs(index, lambda c: c.weights)
        rows, columns = group.outputs[0].shape[2:4]
        wide = np.minimum(member.right - member.left, columns)
        fresh = np.minimum(member.fresh, rows)
        again = ~(self._ringed(group) | member.whole)
        total = rows + (self.bands - 1) * np.maximum(0.0, member.end - member.first)
        times = np.where(again, self.stripes, np.maximum(1.0, total / np.maximum(1e-9, fresh))) * self.blocks
        rowed = by_rows(self.width, self.sharing) & (self.sharing > 1)
        height = np.maximum(1.0, np.where(rowed, np.ceil(fresh / self.sharing), fresh))
        width = np.maximum(1.0, np.where(rowed, wide, np.ceil(wide / self.sharing)))
        work = times * self.sharing * self._costs(index, lambda c: c.box(height, width))
        exposed = work * self._costs(index, lambda c: c.exposed(self.fitted))
        self.arithmetic, self.exposed = self.arithmetic + work, self.exposed + exposed
        alone = (self.sharing == 1) | (self.saves & (self.model.joint(index) < index))  # or without a wait before it
        self.calls = self.calls + times * self.sharing * (self.fitted.call * 2 + np.where(alone, 0, self.fitted.launch))
        made = times * fresh * wide * sum(self.model.size(v)[1] for v in group.outputs)
        footprint = member.window * self.copies + weights * self.workers
        for value in dict.fromkeys(group.inputs):
            if value.constant is None and len(value.shape) == 4:
                self._read(index, value, times, fresh, wide, again)
        if member.whole:
            moves = self.model.cost(index).moves
            self.written[moves] = self.written.get(moves, self.none) + made
        else:
            copied = np.where(member.part, 0.0, made)
            for value in group.outputs:
                for reader in self.program.readers.get(value, ()):
                    if reader > self.last:
                        continue
                    if reader - index > 2:
                        self.far = self.far + copied
                        continue
                    self._moves(reader, member.window, footprint, copied)
            stored = made * rates.writes(footprint, self.workers) / rates.at(footprint, self.workers)
            self.stored, self.anew = self.stored + stored, self.anew + made
            if group.operators == (CONCAT,):
                self.copying[index] = work, exposed, stored, made
            after = [r for v in group.outputs for r in self.program.readers.get(v, ()) if r <= self.last]
            beside = np.max([self.passing.get(r, self.none) for r in after], axis=0)
            passes = self.passing[index] > 0
            own = np.where(member.part, 0.0, member.window)
            self.shared = np.maximum(self.shared, np.where(passes, own + beside, 0))
        self.most = np.maximum(self.most, self._costs(index, lambda c: c.beside(height, width)))
        self.weights = self.weights + weights
        boxes = np.maximum(np.ceil(times / self.blocks), self.stripes) * self.blocks  # small ones read all weights, too
        self.streamed = self.streamed + boxes * self.sharing * self._costs(index, lambda c: c.read(height, width))

    def _moves(self, reader: int, window: Numbers, footprint: Numbers, made: Numbers) -> None:
        """Counts what member ``reader`` reads of the one before, whose ``window`` and weights are ``footprint``. What
        it asks for beside its arithmetic, of windows that the second level can't hold, takes no time of its own."""
        rates, own = self.model.rates, self.members[reader].window
        asks = self._costs(reader, lambda c: c.asks) & (window + own > rates.l2)
        gathers = self.model.cost(reader).gathers
        moved = made / rates.at(footprint + own * self.copies, self.workers, gathers)
        self.moved = self.moved + np.where(asks, 0.0, moved)

    def _costs(self, index: int, ask: Callable[[MemberCost], Numbers]) -> Numbers:
        """``ask`` of what boxes of group ``index`` take, in each shape."""
        found = ask(self.model.cost(index))
        for room, limited in self.limits.items():
            found = np.where(limited, ask(self.model.cost(index, room)), found)
        return found

    def _read(self, index: int, value: Value, times: Numbers, fresh: Numbers, wide: Numbers, again: Numbers) -> None:
        """Counts a read as one from outside until its producer joins. ``again``: nothing stays of the stripe before."""
        both = self.model.reach(index, value)
        if both is None:
            return
        rows = both[0].slope * (fresh - 1) + both[0].after - both[0].before
        columns = both[1].slope * (wide - 1) + both[1].after - both[1].before
        rows, columns = np.minimum(rows, value.shape[2]), np.minimum(columns, value.shape[3])
        rows = np.where(again, rows, np.minimum(rows, both[0].slope * fresh))  # the rest was read a stripe before
        key = value, self.model.cost(index).moves
        self.outside[key] = self.outside.get(key, 0.0) + times * rows * columns * self.model.size(value)[1]

    def at(self, first: int) -> Grown:
        """The segments from ``first`` on, which is the first member now."""
        rates, threads = self.model.rates, self.model.threads
        tasks = self.bands * self.blocks * self.sharing
        workers = self.workers
        windows, near, able = self.kept + self.shared, self.near, self.able
        if self.saving:
            less = self.saved + np.max([self.none, *self.living.values(), *self.joint.values()], axis=0)
            able = able & (~self.saves | (less <= WORTH * windows))
            windows, near = np.where(self.saves, less, windows), near + np.where(self.saves, self.copied, 0)
        scratch = self.copies * windows + workers * self.most
        busy = scratch + (workers if rates.private else 1) * self.weights
        inner = rates.at(busy, workers)
        traffic = self.moved + self.far / inner
        if rates.hides:
            copied = self.fitted.copied * near / inner if rates.private else near / rates.near
            traffic = traffic + self.stored + copied
        else:  # these lines were last touched a stripe before; those that rows move to come and go
            traffic = traffic + (self.anew + self.fitted.copied * near) / inner
        crowded = busy > rates.inner(workers)
        weights = np.where(crowded, self.streamed / rates.streamed(busy, workers), 0.0)
        for (value, moves), amount in self.outside.items():
            if value not in self.inside:
                size = 2 * self.model.size(value)[0]
                known = rates.moves(size) if moves else rates.at(size)
                traffic = traffic + amount / (rates.cold if value in self.program.given else known)
        moving = self.none  # to lines from the third level, since windows fill the second: no arithmetic hides that
        for moves, amount in self.written.items():
            taken = amount * rates.writes(2 * amount) / (rates.cold if moves else rates.at(2 * amount))
            traffic, moving = (traffic, moving + taken) if moves else (traffic + taken, moving)
        rounds = np.ceil(tasks / threads) * threads / tasks * self.share
        exposed = self.exposed / np.maximum(1.0, self.arithmetic)
        arithmetic, traffic = self.model.streaming(self.arithmetic, traffic, weights)
        passed = self.copies * self.kept > rates.stays  # a stripe later the lines of rings come from memory again
        lost = np.where(passed & ~self.saves, self.anew / rates.memory, 0.0)
        cycles = (joined(arithmetic, traffic, exposed) + moving + self.calls + lost) / threads * rounds
        cycles = cycles + self.fitted.launch
        return Grown(first, self.last, self.shapes, able.copy(), scratch, cycles, self._taken(first))

    def _taken(self, first: int) -> Numbers:
        """Bytes of inputs that whole results may lie over: of the rows that those have in a stripe, nobody reads any
        from then on (see plan/overwrite_inputs.py)."""
        single, found, over = self.bands * self.blocks == 1, self.none, set[Value]()
        outputs = [(i, v) for i, line in self.members.items() if line.whole for v in self.program.groups[i].outputs]
        dying = self.program.dying(first, self.last) if single.any() else ()
        inputs = (v for i in sorted(self.members) for v in self.program.groups[i].inputs)
        for value in dict.fromkeys(v for v in inputs if v in dying):
            for index, output in outputs:
                if output in self.program.outputs or output in self.program.shared or output in over:
                    continue
                if alike(output, value, self.program.layouts):
                    found = found + np.where(single & self._behind(index, value), self.model.size(value)[0], 0)
                    over.add(output)
                    break
        return found

    def _behind(self, index: int, value: Value) -> Numbers:
        """Where member ``index`` writes no row before ``value`` was read there for the last time."""
        own, found = self.members[index], np.ones(len(self.shapes), bool)
        for reader in (r for r in self.program.readers[value] if r in self.members):
            both, line = self.model.reach(reader, value), self.members[reader]
            if both is None:
                continue
            if reader == index:
                found &= np.array([self.model.taken(index, self.width, s.sharing) is value for s in self.shapes])
            # what the stripe itself reads before, or each element right before it is written, is over
            next_ = self.rows * own.row_scale if reader <= index else 0.0
            least = both[0].slope * line.start + both[0].before + next_
            found &= (least >= own.end - 1e-6) & (abs(both[0].slope * line.row_scale - own.row_scale) < 1e-6)
        return found
