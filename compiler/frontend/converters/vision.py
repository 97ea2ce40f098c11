"""Reading between the elements (GridSample, RoiAlign, DeformConv), and Col2Im."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from ....schedules.words.dims import is_open
from ....schedules.words.refusal import Refusal
from ..implied import require_equal, require_same
from ..node import OnnxNode
from ..registry import converts
from ..value import OnnxValue
from .conv import per_channel, window_pads

R = relax.op


@converts("GridSample", since=16)
def grid_sample(node: OnnxNode) -> OnnxValue:
    x, grid = node.need(0), node.need(1)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(
        node.attr("mode", "linear"), node.attr("mode", "linear")
    )
    if mode not in ("linear", "nearest", "cubic"):
        raise Refusal(f"mode '{mode}' does not exist")
    pairs = [(grid.shape[-1], x.rank - 2), (grid.shape[0], x.shape[0])] if grid.rank == x.rank else []
    if x.rank < 3 or not pairs or any(a != b for a, b in pairs if not is_open((a, b))):
        raise Refusal(f"its grid {grid} does not fit the image {x}")
    for d, wanted in pairs:
        require_equal(d, wanted, f"its grid {grid} and the image {x}")
    if mode == "cubic" and x.rank != 4:
        raise Refusal("cubic sampling needs two spatial dimensions")

    def run(x: OnnxValue, grid: OnnxValue) -> OnnxValue:
        return node.own(
            "halotile.grid_sample",
            x,
            grid,
            mode=mode,
            padding=node.attr("padding_mode", "zeros"),
            align_corners=bool(node.attr("align_corners", 0)),
        )

    return node.in_float32(run, x, node.cast(grid, x.dtype))


@converts("AffineGrid", since=20)
def affine_grid(node: OnnxNode) -> OnnxValue:
    """theta [N, d, d + 1] -> grid [N, *sizes, d], coordinates x first: one product with the constant base grid.

    ONNX's function body squeezes away a batch of one, and so can't stand in. Along an axis of one element, with
    ``align_corners``, the coordinate is -1 as in ONNX's reference (PyTorch: 0, ONNX Runtime: 1).
    """
    theta, size = node.need(0), node.ints(1, "its size")
    spatial = (size or [])[2:]
    rank = len(spatial)
    if rank not in (2, 3) or theta.shape[1:] != (rank, rank + 1):
        raise Refusal(f"theta {list(theta.shape)} does not fit the size {size}")
    whole = bool(node.attr("align_corners", 0))
    node.require_room(math.prod(spatial) * (rank + 1), f"the grid of {spatial}")
    axes = []
    for n in spatial:
        steps = np.arange(n, dtype=np.float64)
        if whole:
            axes.append(-1 + steps * (2 / (n - 1) if n > 1 else 0))
        else:
            axes.append((2 * steps + 1) / n - 1)
    columns = [*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(spatial)]
    base = np.stack([c.reshape(-1) for c in columns], axis=-1)

    def run(theta: OnnxValue) -> OnnxValue:
        return node.do(R.matmul, node.const(base, theta.dtype), node.transpose(theta, [0, 2, 1]))

    return node.reshape(node.in_float32(run, theta), (theta.shape[0], *spatial, rank))


@converts("RoiAlign", since=10)
def roi_align(node: OnnxNode) -> OnnxValue:
    """Regions as [x1, y1, x2, y2]; a sampling_ratio of 0 (ONNX's default) takes as many samples as a bin is long."""
    x, rois, batch = (node.need(i) for i in range(3))
    closed = not is_open((*rois.shape, *batch.shape))
    if x.rank != 4 or rois.rank != 2 or batch.rank != 1 or closed and rois.shape != (*batch.shape, 4):
        raise Refusal(f"its regions {rois} of the images {batch} do not fit {x}")
    require_same(rois.shape, (*batch.shape, 4), f"its regions {rois} and their images {batch}")
    ratio = max(node.attr("sampling_ratio", 0), 0)
    mode = node.attr(
        "coordinate_transformation_mode", "half_pixel" if node.opset >= 16 else "output_half_pixel"
    )

    def run(x: OnnxValue, rois: OnnxValue) -> OnnxValue:
        return node.own_many(
            "halotile.roi_align",
            x,
            rois,
            batch,
            height=node.attr("output_height", 1),
            width=node.attr("output_width", 1),
            ratio=ratio,
            scale=float(node.attr("spatial_scale", 1.0)),
            largest=node.attr("mode", "avg") == "max",
            half_pixel=mode == "half_pixel",
        )[0]

    return node.in_float32(run, x, rois)


@converts("Col2Im", since=18)
def col2im(node: OnnxNode) -> OnnxValue:
    """The sum of overlapping blocks put back in place: [N, C * prod(block), L] -> [N, C, image...]."""
    x = node.need(0)
    image, block = node.ints(1, "its image shape"), node.ints(2, "its block shape")
    if image is None or block is None:
        raise Refusal("its image or block shape is missing")
    spatial = len(image)
    if x.rank != 3 or len(block) != spatial or x.shape[1] % math.prod(block):
        raise Refusal(f"its blocks {block} of the image {image} do not fit {x}")
    pads = node.attr("pads", [0] * (2 * spatial))
    strides = node.attr("strides", [1] * spatial)
    dilations = node.attr("dilations", [1] * spatial)
    counts = [
        (n + b + e - (k - 1) * d - 1) // s + 1
        for n, k, s, d, b, e in zip(image, block, strides, dilations, pads[:spatial], pads[spatial:])
    ]
    product = 1
    for k in block:
        product *= k
    n, rows, columns = x.shape
    require_equal(columns, math.prod(counts), f"the blocks of {x}, of which the image {image} has {counts}")
    blocks = node.reshape(x, (n, rows // product, *block, *counts))
    return node.in_float32(
        lambda v: node.own(
            "halotile.col2im",
            v,
            image=list(image),
            strides=list(strides),
            dilations=list(dilations),
            begin=list(pads[:spatial]),
        ),
        blocks,
    )


@converts("DeformConv", since=19)
def deform_conv(node: OnnxNode) -> OnnxValue:
    x, w, offset, bias, mask = node.need(0), node.need(1), node.need(2), node[3], node[4]
    if x.rank != 4:
        raise Refusal("only two spatial dimensions are supported")
    taps = w.shape[2] * w.shape[3] * node.attr("offset_group", 1) if w.rank == 4 else 0
    fits = offset.rank == 4 and offset.shape[:2] == (x.shape[0], 2 * taps)
    if not fits or mask is not None and mask.shape != (x.shape[0], taps, *offset.shape[2:]):
        raise Refusal(f"its weights {w}, offsets {offset} and mask {mask or 'of ones'} do not fit {x}")
    strides, dilations = node.attr("strides", [1, 1]), node.attr("dilations", [1, 1])
    begin, end = window_pads(node, x.shape[2:], w.shape[2:], strides, dilations)
    for a in range(2):
        rows = (x.shape[2 + a] + begin[a] + end[a] - (w.shape[2 + a] - 1) * dilations[a] - 1) // strides[a] + 1
        require_equal(offset.shape[2 + a], rows, f"the windows of {x} and its offsets {offset}")
    operands = [x, w, offset] + ([mask] if mask is not None else [])
    outputs, per_group, *kernel = w.shape
    groups, (batch, _, *size) = node.attr("group", 1), offset.shape

    def run(x: OnnxValue, w: OnnxValue, *moves: OnnxValue) -> OnnxValue:
        columns = node.own(
            "halotile.deformed",
            x,
            *moves,
            kernel=kernel,
            strides=list(node.attr("strides", [1, 1])),
            dilations=list(node.attr("dilations", [1, 1])),
            begin=list(node.attr("pads", [0, 0, 0, 0]))[:2],
            offset_groups=node.attr("offset_group", 1),
        )
        depth = per_group * math.prod(kernel)
        columns = node.reshape(columns, (batch, groups, depth, math.prod(size)))
        product = node.do(R.matmul, node.reshape(w, (1, groups, outputs // groups, depth)), columns)
        return node.reshape(product, (batch, outputs, *size))

    result = node.in_float32(run, *operands)
    return result if bias is None else node.do(R.add, result, per_channel(node, bias, result.rank))
