"""Whether a group is one attention: two products with work on rows of scores between them, or the reason why not."""

from __future__ import annotations

from ..general.phases import plan_phases
from ..matmul.folded_moves import along_memory, behind, outgoing, producers
from ..operators.kind import facts_of
from ..operators.te_graph import GroupGraph
from ..words.dims import is_open
from ..words.group import Group
from .facts import DTYPES, AttentionFacts
from .rows import takes_over


def attention_facts(group: Group) -> AttentionFacts | str:
    """The facts of a group that is one attention, or why it is none."""
    products = [n for n in group.nodes if n.operator == "relax.matmul"]
    if len(products) != 2 or group.anchor is not products[1]:
        return "two matrix products, the second the anchor, make an attention"
    facts = AttentionFacts(products[0], products[1], behind(group, products[1]))
    for problem in (_shapes, _roles, _rows, _moves):
        why = problem(group, facts)
        if why:
            return why
    return facts


def _shapes(group: Group, facts: AttentionFacts) -> str | None:
    values = (facts.q, facts.k, facts.v, facts.scores, facts.weights, facts.output)
    if len({v.dtype for v in values}) != 1 or facts.q.dtype not in DTYPES:
        return "its operands differ in type or are not floats of 32 or 64 bits"
    if any(len(v.shape) < 2 for v in values) or facts.weights.shape != facts.scores.shape:
        return "the rows of scores change their shape on the way"
    if facts.scores.shape[:-2] != facts.batch or len(facts.scores.shape) < 3:
        return "the two products have different batches"
    if is_open((facts.depth, facts.width)):
        return "the depth of its products is open"
    return "it is empty" if 0 in (facts.depth, facts.output.elements, facts.scores.elements) else None


def _roles(group: Group, facts: AttentionFacts) -> str | None:
    """Whatever feeds Q, K or V is a map that knows nothing of the scores; what is left lies between the products."""
    kinds = {n: facts_of(n).kind for n in group.nodes}
    if facts.k.constant is not None or facts.v.constant is not None:
        return "a product with weights is faster by itself, from packed panels"
    before = {n for v in (facts.q, facts.k, facts.v) for n in producers(group, v)}
    middle = [n for n in producers(group, facts.weights) if n not in before and n is not facts.first]
    if facts.first in before or facts.second in middle:
        return "a product feeds itself"
    if any(kinds[n] not in ("injective", "view") for n in (*before, *facts.epilogue)):
        return "work around the products is more than maps"
    if any(kinds[n] not in ("injective", "view", "reduce") for n in middle):
        return "work between the products is more than maps and reductions"
    if not any(kinds[n] == "reduce" for n in middle):
        return "no reduction lies between the products"
    beside = {*group.nodes} - {*before, *middle, facts.first, facts.second, *facts.epilogue}
    if any(kinds[n] not in ("injective", "view") for n in beside):
        return "what its epilogue reads is more than maps"
    if any(v in group.outputs for n in (*before, *middle, facts.first, *beside) for v in n.results):
        return "the scores are used elsewhere"
    return None


def _rows(group: Group, facts: AttentionFacts) -> str | None:
    """Every phase between the products works on one row, and the last one may overwrite the scores."""
    graph = GroupGraph(group, [facts.first, facts.second])
    if facts.weights is facts.scores:
        return "nothing lies between the products"
    plan = plan_phases(graph, (facts.weights,))
    rank = len(facts.scores.shape)
    if len(plan.phases) > 1 and plan.prefix < rank - 1:
        return "the work between the products mixes rows"
    for phase in plan.phases:
        full = facts.scores.shape[: rank - 1]
        if phase.shape[: rank - 1] != full or phase.shape[rank - 1 :] not in ((), (1,), (facts.keys,)):
            return "the work between the products changes the shape of rows"
    owners = takes_over(graph, plan, facts)
    return None if owners is not None else "the rows of scores can't be overwritten by what follows them"


def _moves(group: Group, facts: AttentionFacts) -> str | None:
    places = outgoing(group, facts.second)
    if places is None:
        return "the output's elements mix"
    kept = all(along_memory(facts.output, places[v], v) for v in group.outputs)
    return None if kept else "the output's last axis would lie apart"
