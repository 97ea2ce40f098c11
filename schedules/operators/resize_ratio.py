"""Images resized to a size that is in no fixed ratio to their own, as open ones are.

    rows[n, c, y, x]  = sum over k of weight(y, k) * image[n, c, index(y, k), x]      along the rows, stored in cache
    y[n, c, y, x]     = sum over k of weight(x, k) * rows[n, c, y, index(x, k)]

A table of a fixed size's indices and weights is a formula here: the place in float64, by the ratio in float32 that ONNX
has; its floor; and how far behind that it lies. Elements whose weight is 0 are not read, so that no NaN or infinity
counts by one: their weight is shared among equal ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import te, tirx, topi
from tvm.ir import Call

from ..words.dims import to_index
from ..words.sizes import dim_of, surely
from ..words.tvm_types import Expr
from .registry import override
from .te_stages import TABLE

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

COORDINATES = ("half_pixel", "align_corners", "asymmetric")
REAL = "float64"
_SHARES = {2: (0.5, 0.5), 4: (0.125, 0.5, 0.25, 0.125)}  # of weights, at a place that is an element: all read that one

Taps = Callable[[Expr], "list[tuple[int, Expr]]"]


@override("relax.image.resize2d")
def resize2d(call: Call, x: te.Tensor, _size: Expr) -> te.Tensor:
    """The image [N, C, H, W] resized to what ``call`` says, between elements by one axis after the other; the nearest
    ones by TVM's expression, which gets two rows of corners to align where one is made: it is the first."""
    attrs, size = call.attrs, list(call.args[1].values)
    coordinate, method = str(attrs.coordinate_transformation_mode), str(attrs.method)
    between = {"linear": _linear, "cubic": _cubic(float(attrs.cubic_alpha))}.get(method)
    plain = str(attrs.layout) == "NCHW" and not int(attrs.cubic_exclude)
    if between is not None and plain and coordinate in COORDINATES:
        for axis, length in zip((2, 3), size):
            if dim_of(x.shape[axis]) != dim_of(length):
                x = _along(x, axis, length, coordinate, between)
        return x
    places = {"NCHW": 2, "NHWC": 1}[str(attrs.layout)]
    shape = [*x.shape[:places], *size, *x.shape[places + 2 :]]
    if coordinate == "align_corners":
        size = [d if surely(lambda d=d: dim_of(d) > 1) else tirx.max(d, tirx.const(2, d.ty.dtype)) for d in size]  # type: ignore[misc]
    return topi.image.resize2d(
        x, attrs.roi, size, attrs.layout, attrs.method, attrs.coordinate_transformation_mode, attrs.rounding_method,
        attrs.cubic_alpha, attrs.cubic_exclude, attrs.extrapolation_value, output_shape=shape,
    )  # fmt: skip


def _along(x: te.Tensor, axis: int, length: Expr, coordinate: str, taps: Taps) -> te.Tensor:
    """``x`` with ``length`` elements along ``axis``."""
    size, dtype = to_index(dim_of(x.shape[axis])), str(x.dtype)
    place = _place(size, to_index(dim_of(length)), coordinate)

    def behind(o: Expr) -> Expr:
        return tirx.Cast(dtype, place(o) - tirx.floor(place(o)))

    def exact(o: Expr) -> Expr:
        return tirx.EQ(behind(o), tirx.const(0, dtype))

    def table(of: Callable[[Expr], Expr], name: str) -> te.Tensor:
        return te.compute([length], of, name=name, attrs={TABLE: True})

    def index(offset: int) -> te.Tensor:
        def at(o: Expr) -> Expr:
            found = tirx.Cast("int32", tirx.floor(place(o)))
            found = found + tirx.Select(exact(o), 0, offset) if offset else found
            return tirx.max(tirx.min(found, size - 1), 0)

        return table(at, "index")

    def weight(k: int) -> te.Tensor:
        def of(o: Expr) -> Expr:
            found = taps(behind(o))
            return tirx.Select(exact(o), tirx.const(_SHARES[len(found)][k], dtype), found[k][1])

        return table(of, "weight")

    offsets = [offset for offset, _ in taps(tirx.const(0, dtype))]
    tables = [(index(offset), weight(k)) for k, offset in enumerate(offsets)]

    def total(*i: Expr) -> Expr:
        terms = [w(i[axis]) * x(*i[:axis], at(i[axis]), *i[axis + 1 :]) for at, w in tables]
        result: Expr = terms[0]
        for term in terms[1:]:
            result = result + term
        return result

    shape = [length if a == axis else d for a, d in enumerate(x.shape)]
    return te.compute(shape, total, name="resize")


def _place(size: SizeLike, length: SizeLike, coordinate: str) -> Callable[[Expr], Expr]:
    """Where in the input each output lies."""

    def real(value: Expr) -> Expr:
        return tirx.Cast(REAL, value)

    if coordinate == "align_corners":
        step = real(size - 1) / real(tirx.max(length - 1, 1))
        return lambda o: real(o) * step
    scale = real(tirx.Cast("float32", real(length) / real(size)))
    step, half = tirx.const(1, REAL) / scale, tirx.const(0.5, REAL)
    if coordinate == "asymmetric":
        return lambda o: real(o) * step
    return lambda o: (real(o) + half) * step - half


def _linear(t: Expr) -> list[tuple[int, Expr]]:
    return [(0, 1 - t), (1, t)]


def _cubic(a: float) -> Taps:
    def near(t: Expr) -> Expr:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: Expr) -> Expr:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return lambda t: [(-1, far(t + 1)), (0, near(t)), (1, near(1 - t)), (2, far(2 - t))]
