"""Translation check: every rewrite is run on numbers, before and after, on the part of the graph that it touches.

The part is cut at graph inputs and at the results of convolutions and matrix products; what lies between the cut and
the rewrite is computed, so that facts a rule relies on (never negative, same length) hold for the numbers too. Open
dims take several lengths, 1 and 0 among them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
from tvm import relax
from tvm.tirx import Var

from ...errors import InternalError
from ...schedules.words.group import CONTROL
from ...schedules.words.sizes import SYMBOLS, symbol_atoms
from ...schedules.words.tvm_types import Binding, Expr
from .anchors import ANCHORS
from .convert import constant, expression, read, with_sizes
from .graph import CONST, INPUT, ITEM, OPAQUE, GraphNode
from .interpret import interpret
from .rule import EXACT, Rule
from .size_tables import symbols_of

_DEEPEST = 10
_LARGEST = 1 << 22
_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40)


class TranslationCheck:
    """Called with each rewrite before it is carried out; raises :class:`InternalError` when values differ."""

    def __init__(self, float_mode: str) -> None:
        self._mode = float_mode
        self.checked = 0
        self.skipped = 0

    def __call__(self, rule: Rule, replacements: Mapping[GraphNode, GraphNode], touched: Collection[GraphNode]) -> None:
        """``touched`` are the nodes that the rewrite makes or removes: the cut lies above all of them."""
        pairs = list(replacements.items())
        roots = [n for pair in pairs for n in pair]
        cut = _cut(roots, touched)
        if any(_elements(n) > _LARGEST for n in [*cut, *roots]):
            self.skipped += 1
            return
        function, symbols = _function(roots, cut)
        exact = self._mode == "exact" and rule.modes == EXACT
        for seed, lengths in enumerate(_lengths(symbols)):
            bound = with_sizes(function, {s.name: n for s, n in lengths.items()}) if lengths else function
            graph = read(bound)
            tensors = [i for i in graph.inputs if i.is_tensor]
            if not all(t.static for t in tensors):
                continue
            for special in (False, True):
                feeds = _feeds(tensors, seed, special and self._mode != "finite")
                try:
                    values = interpret(graph.outputs, dict(zip(tensors, feeds)))
                except ValueError:
                    # A window or an index that does not fit into an axis of 0 or 1.
                    if lengths and seed < 2:
                        break
                    raise
                for (old, _), before, after in zip(pairs, values[0::2], values[1::2]):
                    self._compare(rule, old, before, after, exact)
        self.checked += 1

    def _compare(self, rule: Rule, old: GraphNode, before: np.ndarray, after: np.ndarray, exact: bool) -> None:
        if not isinstance(before, np.ndarray) or not isinstance(after, np.ndarray):
            return
        if self._mode == "finite" and before.dtype.kind not in "biu" and not np.all(np.isfinite(before)):
            return
        if before.shape == after.shape and _alike(before, after, exact):
            return
        raise InternalError(
            f"simplify: rule {rule.name} changed the values at {old.name} ({old.op}): "
            f"{before.dtype}{list(before.shape)} {_first(before)} became "
            f"{after.dtype}{list(after.shape)} {_first(after)}"
        )


def _alike(a: np.ndarray, b: np.ndarray, exact: bool) -> bool:
    if a.dtype != b.dtype:
        return False
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    wide, other = a.astype(np.float64), b.astype(np.float64)
    if exact:
        return bool(np.array_equal(wide, other, equal_nan=True))
    finite = np.isfinite(wide)
    if not np.array_equal(finite, np.isfinite(other)) or not np.array_equal(
        wide[~finite], other[~finite], equal_nan=True
    ):
        return False
    tolerance = 2e-2 if a.dtype.itemsize == 2 else 2e-3
    largest = max(1.0, float(np.max(np.abs(wide[finite]), initial=0)))
    return bool(np.all(np.abs(wide[finite] - other[finite]) <= tolerance * largest))


def _first(array: np.ndarray) -> str:
    return np.array2string(array.reshape(-1)[:4], precision=5)


def _elements(node: GraphNode) -> int:
    return int(np.prod([d if isinstance(d, int) else 3 for d in node.shape or ()], dtype=np.int64))


def _cut(roots: Iterable[GraphNode], touched: Collection[GraphNode]) -> list[GraphNode]:
    """Nodes at which the computation of ``roots`` starts, none of them above another that is computed."""
    depth: dict[GraphNode, int] = {}
    stack = [(r, 0) for r in roots]
    cut: dict[GraphNode, None] = {}
    while stack:
        node, level = stack.pop()
        if node.op == CONST or depth.get(node, _DEEPEST + 1) <= level:
            continue
        depth[node] = level
        source = node.inputs[0] if node.op == ITEM else node
        far = source.op in ANCHORS | CONTROL or level >= _DEEPEST
        if node.op in (INPUT, OPAQUE) or node.is_tensor and far and node not in touched:
            cut[node] = None
        else:
            cut.pop(node, None)
            stack.extend((i, level + 1) for i in node.inputs)
    return list(cut)


def _function(outputs: list[GraphNode], cut: list[GraphNode]) -> tuple[relax.Function, list[Var]]:
    """A function of the cut's values that returns ``outputs``, and the symbols that its shapes use."""
    parameters = [relax.Var(f"p{k}", n.ty) for k, n in enumerate(cut)]
    exprs: dict[GraphNode, Expr] = dict(zip(cut, parameters))
    bindings: list[Binding] = []
    stack = list(outputs)
    while stack:
        node = stack[-1]
        missing = [] if node in exprs or node.op == CONST else [i for i in node.inputs if i not in exprs]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if node in exprs:
            continue
        if node.op == CONST:
            exprs[node] = constant(node)
            continue
        var = relax.DataflowVar(f"v{len(bindings)}", node.ty)
        bindings.append(relax.VarBinding(var, expression(node, [exprs[i] for i in node.inputs])))
        exprs[node] = var
    symbols = list(dict.fromkeys(s for n in exprs for s in symbols_of(n)))
    if symbols:
        parameters.append(relax.Var("lengths", relax.ShapeType(symbols)))
    result = relax.Tuple([exprs[o] for o in outputs])
    output = relax.Var("outputs", result.ty)
    body = relax.SeqExpr([relax.DataflowBlock([*bindings, relax.VarBinding(output, result)])], output)
    relax.expr._update_type(body, result.ty)
    return relax.Function(parameters, body, result.ty), symbols


def _lengths(symbols: list[Var]) -> list[dict[Var, int]]:
    if not symbols:
        return [{}]
    return [{s: _allowed(s, size) for s, size in zip(symbols, sizes)} for sizes in (
        [1] * len(symbols), [0] * len(symbols), range(7, 7 + len(symbols))
    )]  # fmt: skip


def _allowed(symbol: Var, size: int) -> int:
    """The size, or the next that the model runs at, as far as that is known."""
    known = SYMBOLS.get().get(symbol.name)
    for atom in symbol_atoms(known) if known is not None else []:
        size = max(size, int(atom.low))
        size += -size % atom.multiple
        size = min(size, int(atom.high) // atom.multiple * atom.multiple) if atom.high < size else size
    return size


def _feeds(inputs: list[GraphNode], seed: int, special: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(seed + 17)
    arrays = []
    for node in inputs:
        shape = node.shape or ()
        dtype = node.array_dtype
        if dtype.kind == "b":
            array = rng.integers(0, 2, shape).astype(bool)
        elif dtype.kind in "iu":
            limits = np.iinfo(dtype)
            array = rng.integers(0 if dtype.kind == "u" else -8, 9, shape).astype(dtype)
            if special:
                array = np.where(
                    rng.random(shape) < 0.2, rng.choice([limits.min, limits.max], shape), array
                ).astype(dtype)
        else:
            array = np.asarray(rng.standard_normal(shape) * 2)
            if special:
                array = np.where(rng.random(shape) < 0.2, rng.choice(_SPECIAL, shape), array)
            with np.errstate(all="ignore"):
                array = array.astype(dtype)
        arrays.append(array)
    return arrays
