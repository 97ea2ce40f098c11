"""Random loops and scans, with branches and loops inside, against ONNX Runtime at several numbers of rounds.

(Without rounds it gives rows that have no other dimensions either; test_loops.py has those.)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from flow_models import agree, floats, model_of


@dataclass
class Writer:
    """Random statements over tensors of one shape, [n, 4]; names never repeat."""

    rng: np.random.Generator
    count: int = 0
    known: list[str] = field(default_factory=list)

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def pick(self, names: list[str]) -> str:
        return str(self.rng.choice(names))

    def statements(self, names: list[str], many: int, deep: int = 0) -> tuple[list[str], list[str]]:
        """So many statements on ``names``, and the names that they give."""
        lines, own = [], []
        for _ in range(many):
            kind = self.rng.integers(0, 7 if deep < 2 else 5)
            made = self.name()
            a, b = self.pick(names + own), self.pick(names + own)
            if kind == 0:
                lines.append(f"{made} = {self.pick(['Tanh', 'Neg', 'Sigmoid', 'Abs'])}({a})")
            elif kind == 1:
                lines.append(f"{made} = {self.pick(['Add', 'Sub', 'Mul', 'Max'])}({a}, {b})")
            elif kind == 2:
                lines.append(f"{made} = MatMul({a}, w)")
            elif kind == 3:
                mean = self.name()
                lines.append(f"{mean} = ReduceMean <axes = [1]> ({a})\n{made} = Sub({b}, {mean})")
            elif kind == 4:
                turned, product = self.name(), self.name()
                lines += [f"{turned} = Transpose(w)", f"{product} = MatMul({a}, {turned})"]
                lines.append(f"{made} = Add({product}, {b})")
            elif kind == 5:
                lines.append(self.branch(made, names + own, deep))
            else:
                lines.append(self.loop(made, a, names + own, deep))
            own.append(made)
        return lines, own

    def branch(self, made: str, names: list[str], deep: int) -> str:
        sides = []
        for _ in range(2):
            lines, own = self.statements(names, 3, deep + 1)
            sides.append(f"() => (float[n,4] {own[-1]}) {{ {chr(10).join(lines)} }}")
        total, flag = self.name(), self.name()
        return (
            f"{total} = ReduceSum <keepdims = 0> ({self.pick(names)})\n{flag} = Greater({total}, zero)\n"
            f"{made} = If ({flag}) <then_branch = {self.name()} {sides[0]}, else_branch = {self.name()} {sides[1]}>"
        )

    def loop(self, made: str, start: str, names: list[str], deep: int) -> str:
        i, c, d, state = (self.name() for _ in range(4))
        lines, own = self.statements([*names, state], 3, deep + 1)
        left = self.name()
        lines += [f"{d} = Identity({c})", f"{left} = Tanh({own[-1]})"]
        head = f"(int64 {i}, bool {c}, float[n,4] {state}) => (bool {d}, float[n,4] {left})"
        return f"{made} = Loop <body = {self.name()} {head} {{ {chr(10).join(lines)} }}> (k, , {start})"


def outer(writer: Writer, scan: bool) -> str:
    """A loop or a scan with two states and a row kept, around random statements."""
    lines, own = writer.statements(["s1", "z1", "row", "g"] if scan else ["s1", "z1", "g"], 6)
    lines += [f"s2 = Tanh({own[-1]})", f"z2 = Sigmoid({writer.pick(own)})", f"kept = Neg({writer.pick(own)})"]
    text = "\n".join(lines)
    if scan:
        body = "(float[n,4] s1, float[n,4] z1, float[n,4] row) => (float[n,4] s2, float[n,4] z2, float[n,4] kept)"
        back = int(writer.rng.integers(0, 2))
        attributes = f"num_scan_inputs = 1, scan_input_directions = [{back}], scan_output_directions = [{1 - back}]"
        call = f"s, z, rows = Scan <body = b {body} {{ {text} }}, {attributes}> (s0, z0, x)"
    else:
        text += "\ntotal = ReduceSum <keepdims = 0> (s2)\nagain = Less(total, three)"
        body = "(int64 i, bool c, float[n,4] s1, float[n,4] z1)"
        left = "(bool again, float[n,4] s2, float[n,4] z2, float[n,4] kept)"
        call = f"s, z, rows = Loop <body = b {body} => {left} {{ {text} }}> (few, , s0, z0)"
    return f"""g (float[t,n,4] x, float[n,4] g, int64 m, int64 k, float[n,4] s0, float[n,4] z0)
        => (float[n,4] s, float[n,4] z, float[a,n,4] rows, float[n,4] first) {{
        first = Add(g, s0)
        few = Min(m, most)
        {call}
    }}"""


@pytest.mark.parametrize("seed", range(4))
def test_random_bodies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = outer(Writer(rng), scan=seed % 2 == 1)
    constants = {"w": floats(4, 4) / 2, "zero": np.float32(0), "three": np.float32(3), "most": np.int64(300)}
    model = model_of(text, **constants)
    feeds = []
    for t, n, m, k in ((1, 1, 1, 0), (2, 3, 2, 1), (5, 2, 4, 2), (7, 1, 9, 3)):
        tensors = {name: floats(n, 4) for name in ("g", "s0", "z0")}
        feeds.append({"x": floats(t, n, 4), "m": np.int64(m), "k": np.int64(k), **tensors})
    agree(model, feeds)
