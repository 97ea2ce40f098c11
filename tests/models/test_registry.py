"""The models themselves: valid ONNX, runnable, seeded, and with outputs that would show a mistake."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.models import MODELS

# The seeded light models have one size and up to 575 MB of weights; three are enough to test how they are seeded.
BUILT = [n for n, e in MODELS.items() if not n.startswith("seeded_")] + [
    "seeded_squeezenet",
    "seeded_shufflenet",
]


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


@pytest.mark.parametrize("name", BUILT)
def test_model_is_valid_and_informative(name: str) -> None:
    entry = MODELS[name]
    model = entry.model(small=True)
    onnx.checker.check_model(model, full_check=True)
    first, second = (run(model, entry.inputs(model, seed)) for seed in (0, 1))
    for output, values in first.items():
        largest = np.abs(values).max()
        assert np.isfinite(values).all()
        assert 1e-4 < largest < 1e5, f"{output} is out of range: {largest}"
        if name.startswith("light_"):
            continue  # all their weights are the same number, and so are their outputs
        assert values.std() > 0.05 * largest, f"{output} is nearly constant"
        assert np.abs(values - second[output]).max() > 0.005 * largest, (
            f"{output} hardly depends on the input"
        )


def test_same_seed_same_model_and_another_seed_another() -> None:
    build = MODELS["vit"].model
    assert build(small=True).SerializeToString() == build(small=True).SerializeToString()
    assert build(small=True).SerializeToString() != build(small=True, seed=1).SerializeToString()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("resnet18", "resnet18_dynamo"),
        ("resnet18", "resnet18_raw"),
        ("vit", "vit_dynamo"),
        ("convnext", "convnext_raw"),
    ],
)
def test_every_form_computes_the_same(one: str, other: str) -> None:
    models = [MODELS[n].model(small=True) for n in (one, other)]
    feeds = MODELS[one].inputs(models[0], 3)
    a, b = (run(m, feeds) for m in models)
    assert [n.op_type for n in models[0].graph.node] != [
        n.op_type for n in models[1].graph.node
    ] or other.endswith("dynamo")
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("style", ["torchscript", "dynamo"])
@pytest.mark.parametrize("name", ["resnet18", "shufflenet_v2", "bert", "vit", "segformer", "detector_neck"])
def test_batch_can_be_left_open(name: str, style: str) -> None:
    entry = MODELS[name]
    form = ExportForm(style, 18)
    model = entry.model(small=True, form=form, batch="batch")
    onnx.checker.check_model(model, full_check=True)
    feeds = entry.inputs(model, 0, batch=2)
    assert all(v.shape[0] == 2 for v in feeds.values())
    fixed = run(entry.model(small=True, form=form, batch=2), feeds)
    for output, values in run(model, feeds).items():
        np.testing.assert_allclose(values, fixed[output], rtol=1e-4, atol=1e-4)


def test_styles_differ_where_exporters_do() -> None:
    def kinds(name: str) -> set[str]:
        return {n.op_type for n in MODELS[name].model(small=True).graph.node}

    assert {"Erf", "Constant", "LayerNormalization"} <= kinds("bert")
    assert {"Gelu", "LayerNormalization"} <= kinds("bert_dynamo") and "Constant" not in kinds("bert_dynamo")
    assert {"Shape", "Gather", "Concat", "ReduceMean", "Sqrt"} <= kinds("bert_raw")
    assert "LayerNormalization" not in kinds("bert_raw")
    assert {"ConstantOfShape", "Shape"} <= kinds("bert_constant_mask")


def test_graph_refuses_what_it_cannot_write() -> None:
    with pytest.raises(ValueError, match="style 'keras'"):
        ExportForm("keras")
    with pytest.raises(ValueError, match="opset 7"):
        ExportForm(opset=7)
    graph = ModelGraph("open")
    graph.input("x", ("n", 3))
    with pytest.raises(ValueError, match="dimension 0 of x is open"):
        graph.dim("x", 0)
