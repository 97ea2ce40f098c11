"""The models of the harness: real architectures with seeded weights, small for tests and full for measurements.

entry = MODELS["resnet50"]
model = entry.model(small=True)            # ModelProto
feeds = entry.inputs(model, seed=1)        # random inputs, ids and masks in their ranges
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import onnx
from onnx import helper

from ...compiler.options import Shapes
from ..graph import ExportForm
from .bert import bert
from .convnext import convnext
from .densenet import densenet
from .detector import detector_neck
from .efficientnet import efficientnet_b0
from .file import ModelFile
from .inception import inception
from .light import NAMES as LIGHT_NAMES
from .light import light
from .mobilenet import mobilenet_v2
from .resnet import resnet
from .segformer import segformer
from .shufflenet import shufflenet_v2
from .superres import edsr, espcn
from .swin import swin
from .unet import unet
from .vgg import vgg16
from .vit import vit

if TYPE_CHECKING:
    from ...targets.plain import JsonView

__all__ = ["MODELS", "ExportForm", "ModelEntry", "ModelFile", "random_inputs"]

DYNAMO = ExportForm("dynamo", 20)
RAW = ExportForm("torchscript", 13, raw=True)


@dataclass(frozen=True)
class ModelEntry:
    """One model: its builder, the arguments of the full and of the small one, and the ranges of its integer inputs.

    ``tags``: ``cnn`` or ``transformer``; ``bench`` for those that ``halotile bench`` measures by default; ``light``;
    ``form`` for the same networks as other exporters write them.
    """

    name: str
    build: Callable[..., onnx.ModelProto]
    full: Mapping[str, ExportForm | int | str] = field(default_factory=dict)
    small: JsonView = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    path: ClassVar[Path | None] = None  # where it lies already
    shapes: ClassVar[Shapes | None] = None  # what a file needs beside itself
    typical: ClassVar[Mapping[str, int] | None] = None

    def model(self, small: bool = False, **overrides: object) -> onnx.ModelProto:
        """Builds the model; ``overrides`` are arguments of the builder (``form``, ``batch``, ``size`` ...)."""
        return self.build(**{**self.full, **(self.small if small else {}), **overrides})

    def inputs(self, model: onnx.ModelProto, seed: int = 0, batch: int = 1) -> dict[str, np.ndarray]:
        return random_inputs(model, self.ranges, seed, batch)


def random_inputs(
    model: onnx.ModelProto, ranges: Mapping[str, tuple[int, int]] | None = None, seed: int = 0, batch: int = 1
) -> dict[str, np.ndarray]:
    """Normal floats, and integers within ``ranges`` (0 or 1 unless given); open dimensions become ``batch``."""
    rng = np.random.default_rng(seed)
    weights = {t.name for t in model.graph.initializer}
    feeds = {}
    for info in model.graph.input:
        if info.name in weights:
            continue
        tensor = info.type.tensor_type
        shape = tuple(d.dim_value if d.HasField("dim_value") else batch for d in tensor.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if np.issubdtype(dtype, np.integer):
            low, high = (ranges or {}).get(info.name, (0, 2))
            feeds[info.name] = rng.integers(low, high, shape, dtype=dtype)
        else:
            feeds[info.name] = rng.standard_normal(shape).astype(dtype)
    return feeds


def _entries() -> list[ModelEntry]:
    cnn, form = frozenset({"cnn", "bench"}), frozenset({"form"})
    transformer = frozenset({"transformer", "bench"})
    ids = {"input_ids": (0, 200), "attention_mask": (0, 2)}
    bert_small = {"tokens": 12, "width": 32, "layers": 2, "heads": 4, "vocabulary": 200}
    vit_small = {"size": 32, "patch": 8, "width": 32, "layers": 2, "heads": 2, "classes": 10}
    resnet_small = {"size": 33, "width": 8, "classes": 10}
    convnext_small = {"size": 64, "width": 8, "depths": (1, 1, 2, 1), "classes": 10}
    return [
        ModelEntry("resnet18", resnet, {"depth": 18}, resnet_small, tags=cnn),
        ModelEntry("resnet50", resnet, {"depth": 50}, resnet_small, tags=cnn),
        ModelEntry("mobilenet_v2", mobilenet_v2, {}, {"size": 48, "width": 0.25, "classes": 10}, tags=cnn),
        ModelEntry(
            "efficientnet_b0", efficientnet_b0, {}, {"size": 48, "width": 0.25, "classes": 10}, tags=cnn
        ),
        ModelEntry("vgg16", vgg16, {}, {"size": 32, "width": 0.125, "classes": 10}, tags=cnn),
        ModelEntry("unet", unet, {}, {"size": 32, "base": 4, "levels": 3}, tags=cnn),
        ModelEntry("espcn", espcn, {}, {"height": 20, "width": 30, "features": 16}, tags=cnn),
        ModelEntry("edsr", edsr, {}, {"height": 18, "width": 26, "features": 16, "blocks": 2}, tags=cnn),
        ModelEntry(
            "edsr_conv_upsampler",
            edsr,
            {"upsampler": "conv"},
            {"height": 18, "width": 26, "features": 8, "blocks": 1},
            tags=frozenset({"cnn"}),
        ),
        ModelEntry("detector_neck", detector_neck, {}, {"size": 64, "width": 8, "classes": 5}, tags=cnn),
        ModelEntry(
            "shufflenet_v2",
            shufflenet_v2,
            {},
            {"size": 64, "widths": (8, 16, 32, 64, 64), "repeats": (2, 2, 2), "classes": 10},
            tags=cnn,
        ),
        ModelEntry(
            "densenet", densenet, {}, {"size": 48, "growth": 8, "blocks": (2, 3, 2), "classes": 10}, tags=cnn
        ),
        ModelEntry(
            "inception", inception, {}, {"size": 75, "width": 0.125, "cells": 1, "classes": 10}, tags=cnn
        ),
        ModelEntry("convnext", convnext, {}, convnext_small, tags=cnn),
        ModelEntry("bert", bert, {}, bert_small, ids, transformer),
        ModelEntry("vit", vit, {}, vit_small, tags=transformer),
        ModelEntry(
            "segformer",
            segformer,
            {},
            {"size": 64, "widths": (8, 16, 24, 32), "depth": 1, "classes": 5},
            tags=transformer,
        ),
        ModelEntry(
            "swin",
            swin,
            {},
            {"size": 32, "width": 16, "depths": (2, 2), "window": 4, "classes": 10},
            tags=transformer,
        ),
        # The same networks as other exporters write them; small in both sizes, since only the graph differs.
        ModelEntry("resnet18_dynamo", resnet, {"depth": 18, "form": DYNAMO}, resnet_small, tags=form),
        ModelEntry("resnet18_raw", resnet, {"depth": 18, "form": RAW}, resnet_small, tags=form),
        ModelEntry(
            "shufflenet_raw",
            shufflenet_v2,
            {"form": ExportForm("torchscript", 15, raw=True)},
            {"size": 32, "widths": (8, 16, 32, 32), "repeats": (2, 2), "classes": 10},
            tags=form,
        ),
        ModelEntry("convnext_dynamo", convnext, {"form": DYNAMO}, convnext_small, tags=form),
        ModelEntry(
            "convnext_raw", convnext, {"form": ExportForm("torchscript", 14, raw=True)}, convnext_small, tags=form
        ),
        ModelEntry("bert_dynamo", bert, {"form": DYNAMO}, bert_small, ids, form),
        ModelEntry("bert_raw", bert, {"form": ExportForm("torchscript", 14, raw=True)}, bert_small, ids, form),
        ModelEntry("bert_constant_mask", bert, {"masked": False}, bert_small, ids, form),
        ModelEntry("vit_dynamo", vit, {"form": DYNAMO}, vit_small, tags=form),
        ModelEntry("vit_raw", vit, {"form": ExportForm("torchscript", 16, raw=True)}, vit_small, tags=form),
        *(ModelEntry(f"light_{n}", light, {"model": n}, tags=frozenset({"light"})) for n in LIGHT_NAMES),
        *(
            ModelEntry(
                f"seeded_{n}",
                light,
                {"model": n, "seeded": True},
                tags=frozenset(
                    {"light", "bench", "cnn"} if n in ("squeezenet", "densenet121") else {"light"}
                ),
            )
            for n in LIGHT_NAMES
        ),
    ]


MODELS: dict[str, ModelEntry] = {entry.name: entry for entry in _entries()}
