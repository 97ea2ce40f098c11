"""A convolution of images whose size is open: kernels of boxes, each core a band of rows.

    if the image is at least as large as a register tile, or as Winograd's algorithm is faster from on (image_needs.py):
      parallel for core: the kernel of a box, on whole images, of which each core has as many
        and on the core's band of rows of the images that are left
        and of rows that its tiles leave over, the next kernel's
    else: the same with a kernel of smaller tiles, down to single outputs; of several register tiles that read the same
      weights, with that of the fewest cycles for the image's rows and columns

Register tiles are the target's, for the sizes that the build plans for (open_boxes.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from ..conv import builds_conv
from ..conv.flat_images import has_flat_images
from ..conv.register_tile import PLANNED, Tile, sizes_about, step_cycles
from ..dispatch import build_kernel, family_of, select
from ..emit.builder import KernelBuilder
from ..emit.open_sizes import sizes_of
from ..instructions.prefetch import LINE, can_stream
from ..words.alignment import aligned
from ..words.dims import Dim, bounds, is_open, maximum, minimum, to_index
from ..words.group import Box, Kernel, Packed, Request, Scratch, Value
from ..words.sizes import product, usual
from ..words.tvm_types import Buffer, Expr, PrimFunc
from .box_support import box_alignment, box_refusal
from .channel_shares import ChannelShares, may_share_channels, of_case, usually_whole
from .image_needs import BatchNeeds, ImageNeeds
from .kernel import TiledKernel, box_target
from .larger_images import larger_kernel
from .open_batch import ImagesOfBatch, Share
from .open_boxes import BoxKernel, image_kernels
from .open_residuals import COLUMNS, OnceKernels, once_kernels, overwritten_by_all
from .window_ops import build_margins

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

FLAT = ", rows end to end"


def builds_open_images(request: Request) -> bool:
    """True for a convolution in layouts of its family of which the batch, rows or columns are open."""
    group = request.group
    if group.anchor is None or not is_open(group.outputs[0].shape):
        return False
    blocked = builds_conv(group, lambda v: request.layout(v).block)
    return blocked and box_refusal(group, request.layouts, filled=True) is None


def build_open_images(request: Request) -> TiledKernel:
    """The kernel of a group that :func:`builds_open_images`."""
    group, workers = request.group, request.workers
    flat = _pays_flat(request)
    boxed, size = _boxed(request, flat), _size(request, flat)
    made = list(image_kernels(boxed, workers, lambda since: not ImageNeeds.of(size, since, since).least))
    once = once_kernels(boxed, made)
    if once is not None:
        made = [made[0], once.first, once.rest]
    if not flat and (better := larger_kernel(request, made[0], partial(_boxed, request, flat, fixed=True))) is not None:
        made = [better, *made]
    batch = request.group.outputs[0].shape[0]
    needs = [BatchNeeds.of(size, own.since, own.kernel.least, batch, own.batches) for own in made]
    if (large := _large(request, flat, made[0])) is not None:
        made, needs = [large, *made], [needs[0].and_also(*_largest(request)), *needs]
    kernels = [own.kernel for own in made]
    spare = _spare(request, made)
    margins = tuple(v for v in group.outputs if request.layout(v).margins)
    before = build_margins(group, request, margins) if margins else None
    parts = tuple(kernels if before is None else [*kernels, before])
    operands, offsets, room = _operands(request, parts, needs)
    scratch = Scratch(room * workers)
    operands.append(scratch)
    images = ImagesOfBatch.of(request, [o for o in operands if isinstance(o, Value)]) if workers > 1 else None
    driver = _ImageDriver(request, flat, made, needs, spare, once, parts, operands, offsets, room, images)
    texts = [_text(own, rows) for own, (rows, _) in zip(made, spare)]
    if once is not None:
        texts[-2:] = [str(once)]
    names = " or ".join(dict.fromkeys(texts))
    return TiledKernel(
        function=driver.function(tuple(f"part{i}" for i in range(len(parts)))),
        operands=tuple(operands),
        outputs=group.outputs,
        schedule=f"open images{FLAT * flat}: {names}",
        flops=sum(kernel.flops for kernel in kernels[:1]),
        workspace=max((p.workspace for p in parts), default=0),
        inplace=overwritten_by_all(kernels),
        notes=tuple(dict.fromkeys(n for p in parts for n in p.notes)),
        parts=parts,
        driver=driver.function,
    )


@dataclass(frozen=True)
class _ImageDriver:
    """Calls the kernels ``made`` for an image, and before these what fills margins, the last of ``parts`` if there is
    one more. ``operands`` end in the scratch of all cores, ``room`` bytes for each, in which ``offsets`` are."""

    request: Request
    flat: bool
    made: Sequence[BoxKernel]
    needs: list[BatchNeeds]
    spare: list[tuple[int, int]]
    once: OnceKernels | None
    parts: tuple[Kernel, ...]
    operands: Sequence[Value | Packed | Scratch]
    offsets: dict[Value | Packed | Scratch, SizeLike]
    room: SizeLike
    images: ImagesOfBatch | None

    def function(self, names: tuple[str, ...]) -> PrimFunc:
        """The driver, calling the parts by these names."""
        k, along = KernelBuilder("driver"), int(self.flat)  # the axis that cores share
        unit, kernels = box_alignment(self.request.group), [own.kernel for own in self.made]
        pointers = {o: k.pointer(f"p{i}", "uint8", 1) for i, o in enumerate(self.operands)}

        def call(number: int, numbers: list[Expr], worker: Expr, some: Share | None = None) -> None:
            arguments = self._arguments(pointers, self.parts[number], worker, some)
            sizes = sizes_of(self.parts[number].function)
            if some is not None and self.images is not None:
                sizes = self.images.counted(sizes, some)
            k.add(tirx.Evaluate(tirx.call_extern("int32", names[number], *arguments, *numbers, *sizes)))

        if len(self.parts) > len(kernels):
            call(len(kernels), [], tirx.IntImm("int32", 0))
        rows, columns = (to_index(d) for d in _size(self.request, self.flat))
        chosen = _chosen(k, list(self.made), self.spare, rows, columns)
        cases = _cases(self.needs, chosen)

        def compute(own: dict[str, Expr], worker: Expr, some: Share | None) -> None:
            for number, case in enumerate(cases):
                with nullcontext() if case is None else k.when(case):
                    for part, box in self._boxes(k, number, own):
                        call(part, [box[str(name)] for name in kernels[part].scalars], worker, some)

        fewest = [-(-kernel.least[along] // unit[along]) for kernel in kernels[: len(cases)]]
        least = of_case(k, cases, fewest)
        called = [[kernels[part] for part in self._called(number)] for number in range(len(cases))]
        channels = ChannelShares.of(k, self.request, called, cases)
        number = None if self.images is None else self.images.number
        _share(k, (rows, columns), along, unit[along], least, self.request.workers, compute, number, channels)
        return k.finish({"tirx.noalias": False})

    def _arguments(
        self, pointers: dict[Value | Packed | Scratch, Buffer], part: Kernel, worker: Expr, some: Share | None
    ) -> list[Expr]:
        """The addresses that a part is told."""
        found = []
        for operand in part.operands:
            own: Buffer = pointers.get(operand)
            at: SizeLike = 0
            if own is None:
                own = pointers[self.operands[-1]]
                at = worker * to_index(self.room) + to_index(self.offsets[operand])
            elif some is not None and self.images is not None:
                at = self.images.begin(operand, some)
            found.append(tirx.address_of(own[at]))
        return found

    def _called(self, number: int) -> list[int]:
        """Which parts may compute what is the kernel's of this ``number``."""
        if self.once is not None and self.made[number] is self.once.first:
            return [number, number + 1]
        most, below = self.spare[number]
        return [number, below] if most else [number]

    def _boxes(self, k: KernelBuilder, number: int, own: dict[str, Expr]) -> Iterator[tuple[int, dict[str, Expr]]]:
        """Which parts compute a band that is the kernel's of this ``number``, and what of it; inside of conditions
        where there may be nothing for one."""
        if self.once is not None and self.made[number] is self.once.first:
            for part, box in zip((number, number + 1), _split(k, own)):
                with k.when(box["columns"] > 0):
                    yield part, box
            return
        above, (most, below) = self.made[number].kernel.least[0], self.spare[number]
        left = _left(k, own["rows"], above, most)
        yield number, own if left is None else {**own, "rows": own["rows"] - left}
        if left is not None:
            with k.when(left > 0):
                yield below, {**own, "row": own["row"] + own["rows"] - left, "rows": left}


def _spare(request: Request, made: list[BoxKernel]) -> list[tuple[int, int]]:
    """For each kernel the most rows that its tiles may leave over and another one, whose number follows, computes in
    fewer cycles than another row of tiles takes, which moves back: in register tiles of one row and the same columns,
    in which sums have the same order."""
    found, target = [], request.target
    whole = box_alignment(request.group) == (1, 1)
    numbers = {(own.choice.algorithm, own.choice.plan): number for number, own in enumerate(made)}
    for own in made:
        tile, spare = own.choice.plan, (0, 0)
        if whole and isinstance(tile, Tile) and tile.rows > 1:
            lower = replace(tile, rows=1)
            number = numbers.get((own.choice.algorithm, lower))
            rows, columns = own.kernel.least if number is None else made[number].kernel.least
            if number is not None and rows == 1 and columns <= own.kernel.least[1]:
                above, below = (step_cycles(target, t) for t in (tile, lower))
                spare = sum(n * below < above for n in range(1, tile.rows)), number
        found.append(spare)
    return found


def _chosen(
    k: KernelBuilder, made: list[BoxKernel], spare: list[tuple[int, int]], rows: Expr, columns: Expr
) -> dict[int, Expr]:
    """For the kernels that images choose between, whether the image takes it: of those that it is large enough for, the
    first of the fewest cycles, in 64ths of the most that a tile takes."""
    among = {n: own for n, own in enumerate(made) if own.cycles is not None}
    if len(among) < 2:
        return {}
    most = max((own.cycles or 0 for own in among.values()), default=1)
    units = {n: max(1, round(64 * (own.cycles or 0) / most)) for n, own in among.items()}
    fits, costs = {}, {}
    rows, columns = (n if isinstance(n, int) else k.hold(n) for n in (rows, columns))
    for n, own in among.items():
        (height, width), (over, below) = own.kernel.least, spare[n]
        whole, left = k.hold(tirx.floordiv(rows, height)), _left(k, rows, height, over)
        down = tirx.floordiv(rows + (height - 1), height) * units[n]
        if left is not None:
            down = tirx.Select(left > 0, whole * units[n] + left * units[below], down)
        across = tirx.floordiv(columns + (width - 1), width)
        costs[n] = tirx.Cast("int64", k.hold(down)) * tirx.Cast("int64", k.hold(across))
        fits[n] = tirx.all(rows >= height, columns >= width)
    found: dict[int, Expr] = {}
    for n in among:
        others = [(m, costs[n] < costs[m] if m < n else costs[n] <= costs[m]) for m in among if m != n]
        found[n] = tirx.all(fits[n], *(tirx.any(tirx.Not(fits[m]), better) for m, better in others))
    number: Expr = tirx.IntImm("int32", max(among))
    for n in sorted(among, reverse=True)[1:]:
        number = tirx.Select(found[n], tirx.IntImm("int32", n), number)
    taken = k.bind(k.hold(number), "taken")
    return {n: tirx.EQ(taken, n) for n in among}


def _text(own: BoxKernel, spare: int) -> str:
    over = f", {'a row' if spare == 1 else f'{spare} rows'} over in tiles of one" if spare else ""
    return f"{own}{over}"


def _split(k: KernelBuilder, own: dict[str, Expr]) -> tuple[dict[str, Expr], dict[str, Expr]]:
    """A band's first columns, a multiple of COLUMNS of them, and the others."""
    whole = k.hold(tirx.floordiv(own["columns"], COLUMNS) * COLUMNS)
    rest = {**own, "column": own["column"] + whole, "columns": own["columns"] - whole}
    return {**own, "columns": whole}, rest


def _left(k: KernelBuilder, rows: Expr, step: int, spare: int) -> Expr | None:
    """How many of the rows the next kernel computes; None if it never does."""
    if not spare:
        return None
    rest = k.hold(tirx.floormod(rows, step))  # TVM's simplifier divides by zero on some, inside of conditions
    return rest if spare == step - 1 else k.hold(tirx.Select(rest <= spare, rest, tirx.IntImm("int32", 0)))


def _pays_flat(request: Request) -> bool:
    """True where images are computed pixel after pixel: in register tiles that alone count for it."""
    return has_flat_images(request) and isinstance(select(_boxed(request, True)).plan, Tile)


def _size(request: Request, flat: bool) -> tuple[SizeLike, SizeLike]:
    """Rows and columns of an image; if ``flat`` its pixels are those of one row."""
    rows, columns = request.group.outputs[0].shape[2:]
    return (1, product([rows, columns])) if flat else (rows, columns)


def _large(request: Request, flat: bool, first: BoxKernel) -> BoxKernel | None:
    """The kernel for images whose results are written past the caches, in what else is best at such sizes, with the
    weights of the ``first`` kernel of other images; None where there are no such images, or all are, or where images
    have one size, or the first is one of several that images choose from. None either where only images larger than any
    that the build plans for are such: twice the machine code of a layer, for little of what a network takes."""
    (output, *others), least = request.group.outputs, request.target.fitted.memory.past
    low, high = bounds(output.bytes)
    wide = request.layout(output).held(output.dtype) == "float32"
    if others or not wide or not low <= least < high or not can_stream(request.target):
        return None
    planned = usual(output.bytes) * math.prod(PLANNED[1] if is_open([d]) else 1 for d in output.shape[2:])
    if planned <= least:
        return None
    if first.cycles is not None or not is_open(output.shape[2:]) or request.layout(output).block * 4 != LINE:
        return None
    boxed = _boxed(request, flat, max(1.0, 2 * least / max(1, usual(output.bytes))) ** 0.5)
    choice = family_of(boxed).larger(boxed, first.choice)
    return replace(first, kernel=replace(build_kernel(replace(boxed, choice=choice)), large=True), choice=choice)


def _largest(request: Request) -> tuple[Dim, int]:
    """(pixels, how many): from so many on results are written past the caches."""
    output, least = request.group.outputs[0], request.target.fitted.memory.past
    pixels = product([output.shape[0], *output.shape[2:]])
    return pixels, least // (4 * output.shape[1]) + 1


def _boxed(request: Request, flat: bool, times: float = 1.0, fixed: bool = False) -> Request:
    """The request for boxes as the image that the build plans for, or one so many ``times`` as high and as wide, or a
    core's band of it where cores share it by rows. ``fixed``: what is not open stays as it is."""
    size = request.group.outputs[0].shape[2:]
    height, width = (usual(d) if fixed and not is_open([d]) else max(1, round(times * usual(d))) for d in size)
    units = box_alignment(request.group)
    bands = 1 if usually_whole(request) else request.workers
    rows = max(units[0], -(-height // bands) // units[0] * units[0])
    columns = max(units[1], width // units[1] * units[1])
    spread = sizes_about(rows, columns) if is_open(size) else ()
    if flat:
        rows, columns, spread = 1, rows * columns, tuple((1, h * w, weight) for h, w, weight in spread)
    box = Box(rows, columns, frozenset(), True, units, spread, flat, request.workers > 1)
    return replace(request, target=box_target(request.target), box=box, choice=None)


def _cases(needs: list[BatchNeeds], chosen: dict[int, Expr]) -> list[Expr | None]:
    """When each of the kernels is called, up to the first that computes all images that are left: the image is large
    enough for it, and not for those before it. None for one that computes all. Those in ``chosen`` are called where
    that holds, and not before."""
    cases: list[Expr | None] = []
    smaller: list[Expr] = []  # than what the kernels before need
    for number, own in enumerate(needs):
        if number in chosen:
            cases.append(tirx.all(*smaller, chosen[number]))
            continue
        inside = own.condition()
        conditions = [*smaller, *([] if inside is None else [inside])]
        cases.append(tirx.all(*conditions) if conditions else None)
        if inside is None:
            break
        smaller.append(tirx.Not(inside))
    return cases


def _share(
    k: KernelBuilder, size: tuple[Expr, Expr], along: int, unit: int, least: Expr, workers: int,
    compute: Callable[[dict[str, Expr], Expr, Share | None], None], images: Expr | None, channels: ChannelShares | None,
) -> None:  # fmt: skip
    """Calls ``compute`` with what a kernel of boxes is told, the core, and which images: each core has as many whole
    ones of the ``images`` as the others (None: the kernels compute all), and of those that are left a band of rows, or
    of columns (``along`` 1), none of fewer than ``least`` units; or where that pays, of all or of those that are left,
    a part of the ``channels``. One loop for all kernels, as each parallel loop is a function of its own."""
    total = tirx.floordiv(size[along], unit) if unit > 1 else size[along]
    zero, one = tirx.IntImm("int32", 0), tirx.IntImm("int32", 1)

    def band(first: Expr, end: Expr, part: Expr = zero, parts: Expr = one) -> dict[str, Expr]:
        own, whole = (first * unit, (end - first) * unit), (zero, size[1 - along])
        (row, rows), (column, columns) = (whole, own) if along else (own, whole)
        return {"row": row, "column": column, "rows": rows, "columns": columns, "part": part, "parts": parts}

    if workers == 1:
        compute(band(zero, total), zero, None)
        return
    parts = k.bind(tirx.min(tirx.floordiv(total, least), workers), "n")
    each = None if images is None else k.bind(tirx.floordiv(images, workers), "each")
    cut: Expr | None = None  # true where channels are
    if channels is not None:
        if each is not None:
            each = k.bind(tirx.Select(channels.pay_for_all(images, workers), zero, each), "each")
        left = one if each is None else images - each * workers
        cut = k.bind(channels.pay(left, parts), "cut")
        parts = k.bind(tirx.Select(cut, channels.workers, parts), "n")
    with k.loop(workers, "parallel", "w") as w:
        inside, some = w < parts, None
        if each is not None:
            with k.when(each > 0):
                compute(band(zero, total), w, (w * each, each))
            some = each * workers, images - each * workers
            inside = tirx.all(inside, some[1] > 0)
        with k.when(inside):
            first, end = (tirx.floordiv(at * total, parts) for at in (w, w + 1))
            if cut is None:
                compute(band(k.bind(first, "at"), k.bind(end, "at")), w, some)
                return
            first, end = (k.bind(tirx.Select(cut, all_, own), "at") for all_, own in ((zero, first), (total, end)))
            share = (k.bind(tirx.Select(cut, own, all_), "part") for own, all_ in ((w, zero), (parts, one)))
            compute(band(first, end, *share), w, some)


def _operands(
    request: Request, parts: tuple[Kernel, ...], needs: list[BatchNeeds]
) -> tuple[list[Value | Packed | Scratch], dict[Value | Packed | Scratch, SizeLike], int]:
    """What the parts point to, but for their scratch; where that lies in a worker's, and how large a worker's is: of
    kernels whose scratch follows from the size, none where they are not called."""
    operands: list[Value | Packed | Scratch] = []
    offsets: dict[SizeLike, SizeLike] = {}
    room: SizeLike = 64
    columns = request.group.outputs[0].shape[3]
    for number, part in enumerate(parts):
        at: SizeLike = 0
        own = [o for o in part.operands if isinstance(o, Scratch)]
        sizes = [o.bytes for o in own] if part.fitted is None else part.fitted(_highest(request, part), columns)
        for operand, size in zip(own, sizes, strict=True):
            offsets[operand] = at
            at = aligned(at + size)
        operands += [o for o in part.operands if not isinstance(o, Scratch) and o not in operands]
        if part.fitted is not None:
            at = at * needs[number].called
        room = maximum(room, at)
    return operands, offsets, room


def _highest(request: Request, kernel: Kernel) -> SizeLike:
    """Rows of the highest band of an image: with fewer bands than cores, each is lower than twice the lowest; all of
    them, where cores share channels."""
    rows = request.group.outputs[0].shape[2]
    band = maximum(-(-rows // request.workers), minimum(rows, 2 * kernel.least[0] - 1))
    return band + may_share_channels(request, kernel) * (rows - band)
