"""Names of dimensions that are arithmetic on other names, as exporters write ``past_len + seq_len``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...schedules.words.dims import floor_div

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

_OPERATORS: dict[type, Callable[[SizeLike, SizeLike], SizeLike]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floor_div,
}
LONGEST = 200  # characters


def names_in(text: str) -> set[str]:
    """The names in an expression of at least one operation; none where ``text`` is nothing of the kind."""
    tree = _tree(text)
    if tree is None or isinstance(tree, ast.Name):
        return set()
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


def renamed(text: str, known: Mapping[str, int | str]) -> int | str:
    """The expression with the names that are ``known`` replaced; the number, where no name is left."""
    if names_in(text) <= {n for n, d in known.items() if isinstance(d, int)}:
        return int(value_of(text, known))
    tree = _tree(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = str(known.get(node.id, node.id))
    return ast.unparse(tree)


def value_of(text: str, known: Mapping[str, object]) -> SizeLike:
    """What an expression is where its names are ``known``."""
    return _value(_tree(text), known)


def _value(tree: Any, known: Mapping[str, SizeLike]) -> SizeLike:
    if isinstance(tree, ast.Constant):
        return tree.value
    if isinstance(tree, ast.Name):
        return known[tree.id]
    return _OPERATORS[type(tree.op)](_value(tree.left, known), _value(tree.right, known))


def _tree(text: str) -> Any:
    """The syntax of an expression of names, natural numbers and + - * //; None for anything else."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body if len(text) <= LONGEST else None
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return tree if tree is not None and all(map(_fits, _nodes(tree))) else None


def _nodes(tree: ast.expr) -> list[ast.expr]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.expr)]


def _fits(node: object) -> bool:
    if isinstance(node, ast.BinOp):
        zero = isinstance(node.right, ast.Constant) and node.right.value == 0
        return type(node.op) in _OPERATORS and not (zero and isinstance(node.op, ast.FloorDiv))
    return isinstance(node, ast.Name) or isinstance(node, ast.Constant) and type(node.value) is int
