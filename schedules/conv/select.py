"""Which algorithm computes a convolution: of all that offer to, the one that takes the fewest cycles."""

from __future__ import annotations

from ..words.choice import AlgorithmRefusal, Choice
from ..words.dims import Open
from ..words.group import Request
from .algorithm import ConvAlgorithm, plain_bytes
from .amx.algorithm import AmxPixels, AmxStrips
from .amx.int8_algorithm import AmxBytesConv
from .direct.algorithm import Direct
from .direct.depthwise import Depthwise
from .direct.few_outputs import FewOutputs
from .direct.int8_depthwise import ByteDepthwise
from .direct.int8_dot import Int8DotConv
from .direct.pairs import PairConv
from .direct.small_groups import SmallGroups
from .facts import ConvFacts
from .strassen_algorithm import StrassenConv
from .winograd.algorithm import Winograd
from .winograd.pair_algorithm import PairWinograd

#: Of floats, and of bytes: in the order in which tuning tries their candidates. The last computes whatever the others
#: refuse.
FLOATS: tuple[ConvAlgorithm, ...] = (
    Depthwise(), FewOutputs(), SmallGroups(), AmxStrips(), AmxPixels(), PairConv(), StrassenConv(),
    Winograd(), Direct(),
)  # fmt: skip
BYTES: tuple[ConvAlgorithm, ...] = (ByteDepthwise(), AmxBytesConv(), PairWinograd(), Int8DotConv())
ALGORITHMS: dict[str, ConvAlgorithm] = {a.name: a for a in (*FLOATS, *BYTES)}


def algorithms_for(facts: ConvFacts) -> tuple[ConvAlgorithm, ...]:
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
        offer = offered(algorithm, request, facts)
        if isinstance(offer, AlgorithmRefusal):
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


def considered(request: Request, facts: ConvFacts) -> list[Choice | AlgorithmRefusal]:
    """What every algorithm says that :func:`select` may ask, in order: none behind a sure one, whose layouts they may
    not compute in."""
    found: list[Choice | AlgorithmRefusal] = []
    for algorithm in algorithms_for(facts):
        if facts.sizes is not None and not algorithm.any_size:
            found.append(algorithm.refuses("it needs fixed rows and columns"))
            continue
        found.append(offer := offered(algorithm, request, facts))
        if isinstance(offer, Choice) and offer.sure:
            break
    return found


def offered(algorithm: ConvAlgorithm, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
    """What an algorithm offers, unless it stores more than the build wants."""
    offer = algorithm.offers(request, facts)
    if isinstance(offer, AlgorithmRefusal) or fits_storage(algorithm, request, facts, offer.plan):
        return offer
    stored, plain = algorithm.stored(request, facts, offer.plan), plain_bytes(request, facts)
    return algorithm.refuses(f"it stores {stored} bytes of weights, and the form without a transform {plain}")


def fits_storage(algorithm: ConvAlgorithm, request: Request, facts: ConvFacts, plan: object) -> bool:
    """False for a plan whose transformed weights take more bytes than the weights themselves, where these are stored in
    fewer bytes. Multiply-adds read them then, or bytes; so nothing else would win by them. What no other algorithm
    computes has no smaller form."""
    if algorithm.alone or not request.policy.small_weights:
        return True
    return algorithm.stored(request, facts, plan) <= plain_bytes(request, facts)


def algorithm_of(choice: Choice) -> ConvAlgorithm:
    return ALGORITHMS[choice.algorithm]
