"""What a build says where an operator needs an open dimension fixed: the node, the operator and the dimension."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from ..schedules.words.dims import Open, is_open
from ..schedules.words.sizes import symbols_of

if TYPE_CHECKING:
    from ..schedules.words.group import Group
    from ..schedules.words.size_like import SizeLike
    from .spec import Symbol


@contextmanager
def naming(group: Group) -> Iterator[None]:
    """A scope in which whatever stops the build of a group with open dimensions becomes an UnsupportedError that names
    it."""
    try:
        yield
    except UnsupportedError:
        raise
    except Exception as error:
        names = sorted({s for d in _dims(group) for s in symbols_of(d)})
        if not names:
            raise
        node = group.anchor or group.nodes[-1]
        reason = f" ({error})" if isinstance(error, Open) else ""
        raise UnsupportedError(
            f"node '{node.place}' ({node.operator.rsplit('.', 1)[-1]}) can't be compiled with open "
            f"dimensions{reason}; fix {quoted(names)} with --shape {names[0]}=..."
        ) from error


@contextmanager
def naming_stage(stage: str, symbols: tuple[Symbol, ...]) -> Iterator[None]:
    """A scope that names ``stage`` and the symbols in questions that open dims can't answer, for stages that look at
    all groups together."""
    try:
        yield
    except Open as error:
        names = [s.name for s in symbols]
        if not names:
            raise
        raise UnsupportedError(
            f"the model can't be compiled with open dimensions: in stage {stage}, {error}; fix {quoted(names)} with "
            f"--shape {names[0]}=..."
        ) from error


def _dims(group: Group) -> list[SizeLike]:
    values = [*group.inputs, *group.outputs, *(r for n in group.nodes for r in n.results)]
    return [d for v in values for d in v.shape if is_open([d])]


def quoted(names: list[str]) -> str:
    """Names in quotes, joined by commas and an or."""
    each = [f"'{n}'" for n in names]
    return each[0] if len(each) == 1 else f"{', '.join(each[:-1])} or {each[-1]}"
