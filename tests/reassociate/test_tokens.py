"""Images of convolutions as tokens, and tokens as images for convolutions: turned in one copy from and to channel
blocks, for fixed and open sizes, and where nothing may change."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Build, Options
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds
from ..support.open_runs import checked

CLOSE = 3e-5  # of the largest number
RULES = ("tokens-of-image", "before-tokens", "image-of-tokens")
TYPICAL = {"n": 1, "h": 14, "w": 14}
SIZES = [(1, 14, 14), (2, 1, 1), (1, 3, 17), (3, 7, 5), (1, 33, 20)]


def there_and_back(channels: int, between: str = "Gelu", batch: int | str = "n", **given: int | str) -> Drawing:
    """A convolution, tokens with a function and a product, and an image for the next convolution."""
    g = Drawing(channels)
    x = g.input("x", batch, 8, given.get("h", "h"), given.get("w", "w"))
    y = g.conv(x, 8, channels, 3)
    sizes = g("Shape", y)
    if between == "kept":
        g.output(y, 4)
    t = g("Transpose", g("Reshape", y, g.constant([0, channels, -1], np.int64)), perm=[0, 2, 1])
    if between == "Gelu":
        t = g("Mul", t, g("Sigmoid", t))
    t = g("Add", g.linear(t, channels, channels), t)
    turned = g("Transpose", t, perm=[0, 2, 1])
    if between == "read twice":
        g.output(turned, 3)
    g.output(g.conv(g("Reshape", turned, sizes), channels, 12, 3), 4)
    return g


def built(g: Drawing, folder: Path | None, target: str = "native", **given: object) -> Build:
    options = Options(resolve(target), threads=2, formats=("so",), **given)  # type: ignore[arg-type]
    return run_pipeline(g.model().SerializeToString(), options, output=folder)


def fired(build: Build) -> Counter[str]:
    notes = build.notes.get("reassociate", ())
    return Counter(rule for rule in RULES for note in notes if f"reassociate: {rule}" in note)


def moves(build: Build) -> list[tuple[str, ...]]:
    """The operators of kernels that compute nothing."""
    kinds = ("relax.permute_dims", "relax.reshape")
    return [own for g in build.groups if set(own := tuple(n.operator for n in g.nodes)) <= set(kinds)]


@pytest.mark.parametrize("channels", [16, 7, 20, 48])
@pytest.mark.parametrize("target", ["x86-64-v3", "native"])
def test_open_images_are_turned_once(channels: int, target: str, tmp_path: Path) -> None:
    g = there_and_back(channels)
    build = built(g, tmp_path / "out", target, open=True, typical=TYPICAL)
    assert set(fired(build)) == set(RULES)
    assert len(moves(build)) <= 2 and all("relax.permute_dims" in own for own in moves(build))
    session = onnxruntime.InferenceSession(g.model().SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (n, h, w) in enumerate(SIZES):
            checked(library, session, feeds(g.model(), {"n": n, "h": h, "w": w}, number), CLOSE, (n, h, w))


@pytest.mark.parametrize("shape", [(1, 14, 14), (2, 5, 9)])
@pytest.mark.parametrize("channels", [16, 7, 48])
def test_fixed_images_are_turned_once(channels: int, shape: tuple[int, int, int], tmp_path: Path) -> None:
    n, h, w = shape
    g = there_and_back(channels, batch=n, h=h, w=w)
    build = built(g, tmp_path / "out")
    assert set(fired(build)) == set(RULES)
    product = next(group for group in build.groups if any(n.operator == "relax.matmul" for n in group.nodes))
    assert not any(node.operator == "relax.permute_dims" for node in product.nodes)
    session = onnxruntime.InferenceSession(g.model().SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        checked(library, session, feeds(g.model(), {}, 1), CLOSE, shape)


@pytest.mark.parametrize("between,rules", [("kept", {RULES[0], RULES[2]}), ("read twice", {RULES[0]})])
def test_what_else_is_read_stays(between: str, rules: set[str], tmp_path: Path) -> None:
    g = there_and_back(24, between)
    build = built(g, tmp_path / "out", open=True, typical=TYPICAL)
    assert set(fired(build)) == rules
    session = onnxruntime.InferenceSession(g.model().SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (n, h, w) in enumerate(SIZES):
            given = feeds(g.model(), {"n": n, "h": h, "w": w}, number)
            for own, wanted in zip(library(given).values(), session.run(None, given), strict=True):
                assert np.abs(own - wanted).max() <= CLOSE * np.abs(wanted).max(), (n, h, w)


def test_a_product_does_not_turn_what_it_adds(tmp_path: Path) -> None:
    """Without a convolution near by the rules have nothing to do; read by columns, the sum took four times as long."""
    g = Drawing(3)
    t = g("Transpose", g("Relu", g.input("x", 2, 64, 50)), perm=[0, 2, 1])
    g.output(g("Add", g.linear(t, 64, 64), t), 3)
    build = built(g, tmp_path / "out")
    assert not fired(build)
    product = next(group for group in build.groups if any(n.operator == "relax.matmul" for n in group.nodes))
    assert not any(node.operator == "relax.permute_dims" for node in product.nodes)
    assert any("what it adds to the sums would lie apart" in note for note in product.notes)
    session = onnxruntime.InferenceSession(g.model().SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        checked(library, session, feeds(g.model(), {}, 1), CLOSE, "residual")
