from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest
from halotile.benchmarks import check_models
from halotile.benchmarks.check_models import compare, main

Y = np.array([1.0, -2.0, 4.0], np.float32)


def test_equal_and_nearly_equal_outputs_pass() -> None:
    assert compare({"y": Y}, {"y": Y}, 1e-3) == []
    assert compare({"y": Y + np.float32(0.0035)}, {"y": Y}, 1e-3) == []
    special = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert compare({"y": special}, {"y": special}, 1e-3) == []


@pytest.mark.parametrize(
    ("ours", "message"),
    [
        ({"y": Y + np.float32(0.005)}, "y: differs by 0.005"),
        ({"y": np.array([np.nan, -2.0, 4.0], np.float32)}, "y: differs by inf"),
        ({"y": np.array([1.0, np.inf, 4.0], np.float32)}, "y: differs by inf"),
        ({"y": Y[:2]}, r"y: float32\[2\] instead of float32\[3\]"),
        ({"y": Y.astype(np.float64)}, "y: float64"),
        ({}, "y: missing"),
    ],
)
def test_differences_are_named(ours: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        differences = compare(ours, {"y": Y}, 1e-3)
        assert not differences, differences[0]


def test_an_output_too_many_is_named() -> None:
    assert compare({"y": Y, "z": Y}, {"y": Y}, 1e-3) == ["z: not an output of the model"]


def test_a_model_that_crashes_hides_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pool:
        """Stands for a child process that dies on its first model."""

        made = 0

        def __init__(self, *_: object, **__: object) -> None:
            Pool.made += 1

        def submit(self, _: object, name: str, *__: object) -> Future[tuple[bool, str]]:
            future: Future[tuple[bool, str]] = Future()
            if name == "vgg16":
                future.set_exception(BrokenProcessPool())
            else:
                future.set_result((True, "fine"))
            return future

        def shutdown(self) -> None: ...

    monkeypatch.setattr(check_models, "ProcessPoolExecutor", Pool)
    assert main(["vgg16", "espcn"]) == 1
    assert capsys.readouterr().out.splitlines() == ["FAIL vgg16: crashed", "ok   espcn: fine", "1 of 2 agree"]
    assert Pool.made == 2


def test_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["resnet51"])
    assert "unknown model resnet51; known: " in capsys.readouterr().err
