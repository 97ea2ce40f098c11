"""Which algorithm computes a convolution: of all that offer to, the one that takes the fewest cycles."""

from __future__ import annotations

from ..words.choice import Choice, Refusal
from ..words.dims import Open
from ..words.group import Request
from .algorithm import Algorithm
from .amx.algorithm import AmxPixels, AmxStrips
from .amx.int8_algorithm import AmxBytes
from .direct.algorithm import Direct
from .direct.depthwise import Depthwise
from .direct.few_outputs import FewOutputs
from .direct.int8_dot import Int8Dot
from .direct.small_groups import SmallGroups
from .facts import ConvFacts
from .strassen_algorithm import Strassen
from .winograd.algorithm import Winograd

#: Of floats, and of bytes: in the order in which tuning tries their candidates. The last computes whatever the others
#: refuse.
FLOATS: tuple[Algorithm, ...] = (
    Depthwise(), FewOutputs(), SmallGroups(), AmxStrips(), AmxPixels(), Strassen(), Winograd(), Direct(),
)  # fmt: skip
BYTES: tuple[Algorithm, ...] = (AmxBytes(), Int8Dot())
ALGORITHMS: dict[str, Algorithm] = {a.name: a for a in (*FLOATS, *BYTES)}


def algorithms_for(facts: ConvFacts) -> tuple[Algorithm, ...]:
    return BYTES if facts.of_bytes else FLOATS


def select(request: Request, facts: ConvFacts) -> Choice:
    """What is taken for the request; ``facts`` are those of its box, where it has one."""
    *special, general = algorithms_for(facts)
    if facts.sizes is not None:
        special = [a for a in special if a.any_size]
        if not general.any_size:
            raise Open(f"{general.name} convolutions need fixed rows and columns")
    best: Choice | None = None
    for algorithm in special:
        offer = algorithm.offers(request, facts)
        if isinstance(offer, Refusal):
            continue
        if offer.sure:
            return offer
        if best is None or offer.cycles < best.cycles:
            best = offer
    if best is None:
        offer = general.offers(request, facts)
        assert isinstance(offer, Choice)
        best = offer
    return best


def considered(request: Request, facts: ConvFacts) -> list[Choice | Refusal]:
    """What every algorithm says of the request, in order."""
    return [a.offers(request, facts) for a in algorithms_for(facts)]


def algorithm_of(choice: Choice) -> Algorithm:
    return ALGORITHMS[choice.algorithm]
