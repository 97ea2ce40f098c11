"""Damaged models are compiled or refused in words of ours: never a traceback, another exception or a hang."""

from __future__ import annotations

import glob
import os
import re

import onnx
import onnx.backend.test
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import HalotileError, InternalError
from halotile.targets.resolve import resolve
from mutations import damaged
from whole_models import whole_model

LIGHT = sorted(glob.glob(os.path.join(os.path.dirname(onnx.backend.test.__file__), "data", "light", "*.onnx")))
SMALL = [p for p in LIGHT if os.path.getsize(p) < 40_000]
EACH = 12  # damaged models in one test


def source(number: int) -> onnx.ModelProto:
    if number % 3 == 0:
        return onnx.load(SMALL[number // 3 % len(SMALL)])
    return whole_model(number, 3, ("image", "sequence")[number % 2])[0]


@pytest.mark.parametrize("number", range(10))
def test_damaged_models_are_refused_in_a_line(number: int) -> None:
    model, refused = source(number), 0
    for seed in range(EACH):
        data = damaged(model, 1000 * number + seed)
        try:
            run_pipeline(data, Options(resolve("native"), stop_after="fuse"))
        except InternalError:
            raise
        except HalotileError as error:
            text = str(error)
            assert "\n" not in text or "nodes are not supported" in text
            assert not re.search(r"Traceback|[A-Z]\w+Error:", text), text
            refused += 1
    assert refused  # else nothing was damaged
