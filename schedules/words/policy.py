"""What a build allows its kernels, folded once from its options: whoever chooses an algorithm asks the policy.

    exact=True           sums keep their order: no Winograd, no seven products, no parts of float32
    winograd=False       no seven products either: what is left is direct
    weights="float16"    no parts, no seven products and no Winograd, which store other forms of the weights
    weights="int8"       the same; weights are whole numbers times a scale a channel (passes/numbers)
    precision="bfloat16" one product of bfloat16 where float32 would take three, or pairs of them in vectors; weights of
                         two bytes
    precision="float16"  layers in float16, where the target computes in it (passes/halves)
    speed=False          memory goes before time: nothing that needs more of it to be faster
    layers={"conv1": "bfloat16", ...}   each layer has a precision of its own, by its node in the model
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, eq=False)
class Tuning:
    """Choices that were measured: ``chosen`` names a candidate for a decision's key (words/candidates.py);
    ``candidate`` is the rank of the one to build of every decision that ``chosen`` does not know."""

    chosen: Mapping[str, str] = field(default_factory=dict)
    candidate: int = 0


@dataclass(frozen=True, eq=False)
class Layers:
    """``precision`` of each layer that has one of its own, by the name of its node in the model."""

    precision: Mapping[str, str]

    def of(self, sources: Iterable[str]) -> str:
        """The precision of what is made of the nodes ``sources``: float32 where layers of several are in it, or none
        that is known."""
        found = {self.precision[name] for name in sources if name in self.precision}
        return found.pop() if len(found) == 1 else "float32"


@dataclass(frozen=True)
class Policy:
    """Which algorithms and roundings kernels may take, and what counts; made by :meth:`of`.

    ``exact``       sums of floats are computed in the order and type that the model has
    ``winograd``    convolutions by Winograd's transforms
    ``strassen``    seven products of halves instead of eight
    ``matrix``      bytes are multiplied on a matrix unit, where the target has one
    ``parts``       float32 is, as a sum of products of bfloat16 parts
    ``precision``   "float32", or "bfloat16" or "float16": what layers may round their numbers to, where that is faster
    ``weights``     "float32", or what weights of convolutions and products are stored as: "float16", "int8"
    ``speed``       time goes before memory
    ``threads``     cores that share a kernel; 0 is all that the target has
    ``rounding``    how far rewrites may go: "strict", "finite" or "exact" (passes/simplify)
    ``tuning``      measured choices; None where nothing was measured and nothing is to be
    ``layers``      precisions of layers, of which ``precision`` is the one that is not float32; None: all may take it
    """

    exact: bool = False
    winograd: bool = True
    strassen: bool = True
    matrix: bool = True
    parts: bool = True
    precision: str = "float32"
    weights: str = "float32"
    speed: bool = True
    threads: int = 0
    rounding: str = "strict"
    tuning: Tuning | None = None
    layers: Layers | None = None

    @staticmethod
    def of(
        *,
        exact: bool = False,
        winograd: bool = True,
        matrix: bool = True,
        weights: str = "float32",
        precision: str = "float32",
        speed: bool = True,
        threads: int | None = None,
        float_mode: str = "strict",
        tuning: Tuning | None = None,
        layers: Mapping[str, str] | None = None,
    ) -> Policy:
        """The policy of these options, with what one implies for another."""
        narrow = weights != "float32"
        free = winograd and not exact
        return Policy(
            exact=exact,
            winograd=free,
            strassen=free and speed and not narrow,
            matrix=matrix,
            parts=matrix and not exact and (not narrow or (weights, precision) == ("float16", "bfloat16")),
            precision="float32" if exact else precision,
            weights=weights,
            speed=speed,
            threads=threads or 0,
            rounding="exact" if exact and float_mode == "strict" else float_mode,
            tuning=tuning,
            layers=None if layers is None or exact else Layers(layers),
        )

    def narrowed(self, sources: Iterable[str]) -> Policy:
        """The policy for what is made of the model's nodes ``sources``."""
        if self.layers is None:
            return self
        return replace(self, layers=None, precision=self.precision_of(sources))

    def precision_of(self, sources: Iterable[str]) -> str:
        """What may be computed in that is made of the model's nodes ``sources``."""
        if self.layers is None:
            return self.precision
        found = self.layers.of(sources)
        return self.precision if found == self.precision else "float32"

    @property
    def small_weights(self) -> bool:
        """Whether weights are to take few bytes, which goes before time."""
        return self.weights != "float32"


ANY = Policy()  # whatever a family likes
