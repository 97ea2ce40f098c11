"""Whether a group is one attention: two products with work on rows of scores between them, or the reason why not."""

from __future__ import annotations

from ..general.phases import plan_phases
from ..matmul.folded_moves import along_memory, behind, outgoing, producers
from ..operators.kind import facts_of
from ..operators.te_graph import GroupGraph
from ..words.dims import is_open
from ..words.group import Group, Node
from .facts import DTYPES, HALF, WIDE, AttentionFacts
from .rows import takes_over
from .softmax import softmax_source


def attention_facts(group: Group) -> AttentionFacts | str:
    """The facts of a group that is one attention, or why it is none."""
    products = [n for n in group.nodes if n.operator == "relax.matmul"]
    if len(products) != 2 or group.anchor is not products[1]:
        return "two matrix products, the second the anchor, make an attention"
    first, second = products
    facts = AttentionFacts(first, second, behind(group, second), _casts(group, first, second))
    for problem in (_shapes, _roles, _rows, _moves):
        why = problem(group, facts)
        if why:
            return why
    return facts


def _casts(group: Group, first: Node, second: Node) -> tuple[Node, Node] | None:
    """The casts that alone stand behind the first and before the second product, where both are of float16."""
    made, read = first.results[0], second.operands[0]
    behind_first = [n for n in group.nodes if made in n.inputs]
    before_second = [n for n in group.nodes if read in n.results]
    if made.dtype != HALF or len(behind_first) != 1 or len(before_second) != 1:
        return None
    casts = (behind_first[0], before_second[0])
    kept = all(n.operator == "relax.astype" for n in casts) and casts[0].results[0].dtype == WIDE
    return casts if kept and casts[1].inputs[0].dtype == WIDE else None


def _shapes(group: Group, facts: AttentionFacts) -> str | None:
    values = [facts.q, facts.k, facts.v, facts.scores, facts.weights, facts.output]
    if facts.casts:
        values[3], values[4] = facts.first.results[0], facts.second.operands[0]
    dtypes = (HALF,) if facts.casts else DTYPES
    if len({v.dtype for v in values}) != 1 or facts.q.dtype not in dtypes:
        return "its operands differ in type or are not floats of 32 or 64 bits"
    if any(len(v.shape) < 2 for v in values) or facts.weights.shape != facts.scores.shape:
        return "the rows of scores change their shape on the way"
    if facts.scores.shape[:-2] != facts.batch or len(facts.scores.shape) < 3:
        return "the two products have different batches"
    if is_open((facts.depth, facts.width)) or facts.casts and is_open((facts.keys,)):
        return "the depth of its products is open"
    return "it is empty" if 0 in (facts.depth, facts.output.elements, facts.scores.elements) else None


def _roles(group: Group, facts: AttentionFacts) -> str | None:
    """Whatever feeds Q, K or V is a map that knows nothing of the scores; what is left lies between the products."""
    kinds = {n: facts_of(n).kind for n in group.nodes}
    if facts.k.constant is not None or facts.v.constant is not None:
        return "a product with weights is faster by itself, from packed panels"
    before = {n for v in (facts.q, facts.k, facts.v) for n in producers(group, v)}
    middle = [n for n in producers(group, facts.second.operands[0]) if n not in before and n is not facts.first]
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
    graph = GroupGraph(group, facts.opaque)
    if facts.weights is facts.scores:
        return "nothing lies between the products"
    if facts.casts and softmax_source(group, graph, facts) is None:
        return "rows of scores between products of float16 are more than a softmax of maps"
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
