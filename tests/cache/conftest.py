"""What tests of the cache share."""

from __future__ import annotations

from typing import Any

import pytest
from halotile.compiler import pipeline


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models that went through the pipeline."""
    seen: list[Any] = []
    real = pipeline.run_pipeline

    def run(model: Any, *args: Any, **named: Any) -> Any:
        seen.append(model)
        return real(model, *args, **named)

    monkeypatch.setattr(pipeline, "run_pipeline", run)
    return seen
