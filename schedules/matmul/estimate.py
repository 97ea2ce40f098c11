"""What a product with constant weights will take: to choose its kernel, and for passes that choose between forms of a
graph."""

from __future__ import annotations

from ...targets.target import Target
from ..instructions.amx import has_matrix_unit
from ..instructions.bf16_pairs import has_pairs
from ..instructions.bf16_parts import ONE, THREE, Products, products_of
from ..words.dims import is_open
from ..words.group import Request, dtype_bytes
from ..words.sizes import usual
from .amx_blocks import STAYS, ProductShape, choose_registers
from .amx_kernel import fits_unit
from .blocking import PARALLEL_FLOPS
from .facts import MatmulFacts
from .pairs import fits_pairs, pair_cycles, pairs_pay
from .register_tile import least_cost
from .strassen import rows_of_image, seven_cycles, strassen_pays

GAIN = 0.9  # of the present kernels' estimate: nearer than that, sums of whole float32 products are taken


def product_cycles(
    target: Target,
    images: int,
    rows: int,
    depth: int,
    columns: int,
    dtype: str,
    threads: int,
    seven: bool,
    matrix: bool = False,
    products: Products = THREE,
) -> float:
    """Cycles for ``images`` times ``rows x depth`` by one ``depth x columns``, on ``threads`` cores. ``seven``: by
    seven products of halves, ``matrix``: by the matrix unit
    with ``products`` of parts, where the kernel family would take those."""
    cycles = _plain_cycles(target, images, rows, depth, columns, dtype, seven)
    if matrix and dtype == "float32" and has_matrix_unit(target):
        shape = ProductShape(images * rows, depth, columns, 1, products)
        if _unit_pays(target, shape, cycles):
            cycles = choose_registers(target, shape, 1)[0]
    elif products is ONE and dtype == "float32" and has_pairs(target):
        if pairs_pay(target, (images * rows, depth, columns), cycles):
            cycles = pair_cycles(target, images * rows, depth, columns)
    if threads > 1 and 2 * images * rows * depth * columns >= PARALLEL_FLOPS:
        return cycles / threads + target.fitted.registers.product_launch
    return cycles


def matrix_pays(request: Request, facts: MatmulFacts) -> bool:
    """True if the matrix unit may compute the product, and is estimated to be faster than what else would."""
    if not fits_unit(request, facts):
        return False
    rows, plain = _rows_and_cycles(request, facts)
    shape = ProductShape(rows, facts.k, facts.n, 1, products_of(request.policy))
    return _unit_pays(request.target, shape, plain)


def pairs_expected(request: Request, facts: MatmulFacts) -> bool:
    """True if the product may be one of pairs of bfloat16, and is estimated to be faster so than in float32."""
    if not fits_pairs(request, facts):
        return False
    rows, plain = _rows_and_cycles(request, facts)
    return pairs_pay(request.target, (rows, facts.k, facts.n), plain)


def _rows_and_cycles(request: Request, facts: MatmulFacts) -> tuple[int, float]:
    """Rows of the product, and its cycles in multiply-adds of float32."""
    seven, rows, images = False, usual(facts.rows), 1
    if not is_open(facts.output.shape):
        seven = strassen_pays(request, facts)
        if facts.flat:
            rows, images = rows_of_image(facts), facts.rows // rows_of_image(facts)
    plain = _plain_cycles(request.target, images, rows, facts.k, facts.n, facts.output.dtype, seven)
    return images * rows, plain


def _plain_cycles(
    target: Target, images: int, rows: int, depth: int, columns: int, dtype: str, seven: bool
) -> float:
    """On one core, without the matrix unit."""
    fewer = seven_cycles(target, rows, depth, columns, dtype) if seven else None
    if fewer is not None:
        return images * fewer
    vectors = -(-columns // target.lanes(dtype))
    return depth * least_cost(target, images * rows, vectors, depth * dtype_bytes(dtype))


def _unit_pays(target: Target, shape: ProductShape, plain: float) -> bool:
    """Both wait for weights that come from beyond the second level."""
    weights = shape.depth * shape.columns * 4
    if weights > STAYS * target.l2_bytes:
        plain = max(plain, weights / target.far_bytes)
    return choose_registers(target, shape, 1)[0] < GAIN * plain
