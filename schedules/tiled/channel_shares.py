"""When cores share the channels of open images rather than their rows, which only a run can tell.

    7 x 7 of 512 channels, 4 cores    rows:      3 bands of 2 or 3 rows; each core reads all weights
                                      channels:  4 x 128 of these; each core reads a quarter of the weights, all data

A layer whose weights are many times its images is bound by how fast those arrive; and few rows are few bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from ..conv.direct.kernel import OWN_GROUPS
from ..emit.builder import KernelBuilder
from ..words.dims import maximum, minimum, to_index
from ..words.group import Kernel, Packed, Request, dtype_bytes
from ..words.sizes import product, usual
from ..words.tvm_types import Expr

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

LARGEST = (1 << 31) - 1
VECTORS = 2  # of channels, at least, in a group
EVEN = 4  # groups of channels for each core, from which on it hardly matters that some have one more


@dataclass(frozen=True)
class ChannelShares:
    """Of the kernel that is called: how many ``workers`` may share its channels, whether these have about as many each
    (``even``), and the bytes of images from which on these are large beside the weights (``enough``);
    ``image``: the bytes of one."""

    workers: Expr
    even: Expr
    enough: Expr
    image: Expr

    @staticmethod
    def of(
        k: KernelBuilder, request: Request, called: Sequence[Sequence[Kernel]], cases: Sequence[Expr | None]
    ) -> ChannelShares | None:
        """Of the kernels that are ``called`` together in each case; None where none of them has groups of channels, or
        one core computes all."""
        workers, anchor = request.workers, request.group.anchor
        groups = [min(kernel.groups for kernel in own) for own in called]
        if workers == 1 or anchor is None or max(groups) == 1:
            return None
        data = anchor.operands[0]
        even = [int(n % workers == 0 or n >= EVEN * workers) for n in groups]
        enough = [_weights(own[0]) // OWN_GROUPS for own in called]
        elements = tirx.Cast("int64", to_index(product(data.shape[1:])))
        return ChannelShares(
            of_case(k, cases, [min(n, workers) for n in groups]),
            of_case(k, cases, even),
            of_case(k, cases, [min(n, LARGEST) for n in enough]),
            elements * dtype_bytes(data.dtype),
        )

    def pay(self, images: Expr, bands: Expr) -> Expr:
        """True if ``images`` of which cores could share so many ``bands`` are better shared by channels."""
        small = tirx.Cast("int64", images) * self.image < tirx.Cast("int64", self.enough)
        return tirx.any(self.workers > bands, tirx.all(self.workers >= bands, self.even > 0, small))

    def pay_for_all(self, images: Expr, workers: int) -> Expr:
        """True if all ``images`` are so small beside the weights that no core should have some of its own."""
        small = tirx.Cast("int64", images) * self.image < tirx.Cast("int64", self.enough)
        return tirx.all(self.workers >= workers, self.even > 0, small)


def usually_whole(request: Request) -> bool:
    """True if cores compute whole images at the size that is planned for: each some of its own, or a part of the
    channels of all."""
    anchor, output = request.group.anchor, request.group.outputs[0]
    images = usual(output.shape[0])
    if request.workers == 1 or images >= request.workers or anchor is None:
        return True
    data, weight = anchor.operands[:2]
    many = output.shape[1] >= VECTORS * request.workers * request.target.lanes(output.dtype)
    return bool(many and usual(data.bytes) * OWN_GROUPS < weight.bytes)


def may_share_channels(request: Request, kernel: Kernel) -> SizeLike:
    """1 for sizes at which cores may share the kernel's channels, and 0 for others."""
    anchor, workers = request.group.anchor, request.workers
    if workers == 1 or anchor is None or kernel.groups == 1:
        return 0
    data, rows = anchor.operands[0], request.group.outputs[0].shape[2]
    few = 1 - minimum(1, rows // (kernel.least[0] * workers))
    image = product(data.shape[1:]) * dtype_bytes(data.dtype)
    small = 1 - minimum(1, image // max(1, _weights(kernel) // OWN_GROUPS))
    return maximum(few, small)


def _weights(kernel: Kernel) -> int:
    """Bytes of the constants that the kernel reads."""
    return sum(o.elements * dtype_bytes(o.dtype) for o in kernel.operands if isinstance(o, Packed))


def of_case(k: KernelBuilder, cases: Sequence[Expr | None], numbers: Sequence[int]) -> Expr:
    """The number of the kernel that is called, of those in order of their ``cases``, of which the last holds always."""
    found: Expr = tirx.IntImm("int32", numbers[-1])
    if len(set(numbers)) > 1:
        for case, own in reversed([*zip(cases, numbers)][:-1]):
            found = k.hold(tirx.Select(case, tirx.IntImm("int32", own), found))
    return found
