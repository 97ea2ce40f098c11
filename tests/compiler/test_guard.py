"""What leaves the Python API is of our family, or the caller's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import halotile
import pytest
from halotile.compiler import pipeline
from halotile.compiler.frontend import walk
from halotile.compiler.runtime import loader
from halotile.errors import HalotileError, InternalError, OutputError, UnsupportedError
from small_models import tiny

DEFECTS = (KeyError("x"), ValueError("two\nlines"), AssertionError(), IndexError("x"), RuntimeError("x"))


def raises(error: BaseException) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise error

    return function


@pytest.mark.parametrize("error", DEFECTS, ids=lambda e: type(e).__name__)
def test_a_defect_is_an_internal_error(error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pipeline, "run_pipeline", raises(error))
    monkeypatch.setattr(loader, "path_of", raises(error))
    calls = (
        lambda: halotile.compile(tiny()), lambda: halotile.inspect(tiny(), "import"), lambda: halotile.load(tmp_path)
    )  # fmt: skip
    for call in calls:
        with pytest.raises(InternalError, match=type(error).__name__) as raised:
            call()
        assert raised.value.__cause__ is error and "\n" not in str(raised.value)


def test_too_little_memory_and_a_full_disk_are_no_defects(monkeypatch: pytest.MonkeyPatch) -> None:
    for error, kind, text in (
        (MemoryError(), HalotileError, "not enough memory"),
        (OSError(13, "Permission denied", "/a/b"), OutputError, "/a/b: Permission denied"),
    ):
        monkeypatch.setattr(pipeline, "run_pipeline", raises(error))
        with pytest.raises(kind, match=text) as raised:
            halotile.compile(tiny())
        assert not isinstance(raised.value, InternalError)


def test_too_little_memory_for_a_node_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "computed", raises(MemoryError()))
    with pytest.raises(UnsupportedError, match="node .* not enough memory"):
        halotile.inspect(tiny(), "import")


def test_the_errors_of_the_caller_are_the_callers() -> None:
    error = KeyError("mine")
    with pytest.raises(KeyError) as raised:
        halotile.compile(tiny(), progress=raises(error))
    assert raised.value is error
    with pytest.raises(TypeError, match="unexpected keyword"):
        halotile.compile(tiny(), colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^compile\(\) got .* 'optimise'; did you mean 'optimize'\?$"):
        halotile.compile(tiny(), optimise="memory")  # type: ignore[call-arg]
    with pytest.raises(KeyboardInterrupt):
        halotile.compile(tiny(), progress=raises(KeyboardInterrupt()))
