"""torch.compile(backend="halotile") against eager PyTorch, whose answers and memory are the reference."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomllib

try:
    import onnxscript  # noqa: F401
    import torch
except ImportError as error:  # PyTorch's CPU build takes 0.9 GB, its usual one several: too much for every checkout
    pytest.skip(f"TORCH.COMPILE IS NOT TESTED: {error}; `make torch-tests` does it", allow_module_level=True)

from halotile.compiler.torch import backend
from halotile.compiler.torch.tensors import array_of, tensor_of
from torch import nn

TOLERANCE = 2e-5


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(3)


class Recorded:
    """The backend, and the graphs that it was given."""

    def __init__(self) -> None:
        self.graphs: list[backend.CompiledGraph] = []

    def __call__(self, graph: Any, inputs: Any, **more: Any) -> backend.CompiledGraph:
        self.graphs.append(backend.halotile(graph, inputs, **more))
        return self.graphs[-1]

    @property
    def compiled(self) -> int:
        """Libraries that the graphs have; every graph of them must be one of ours."""
        assert all(g.handed_back is None for g in self.graphs), [g.handed_back for g in self.graphs]
        return sum(map(len, self.graphs))


def agree(module: Any, *inputs: Any, recorded: Recorded | None = None, **options: Any) -> Recorded:
    recorded = recorded or Recorded()
    compiled = torch.compile(module, backend=recorded, **options)
    with torch.no_grad():
        ours, theirs = compiled(*inputs), module(*inputs)
    ours, theirs = (r if isinstance(r, tuple) else (r,) for r in (ours, theirs))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=TOLERANCE, atol=TOLERANCE * max(1.0, float(b.abs().max())))
    return recorded


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """ResNet-18 as torchvision writes it, of another width."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        self.layers = nn.Sequential(
            *(nn.Sequential(Block(a, b, 1 + (i > 0)), Block(b, b, 1)) for i, (a, b) in enumerate(zip(sizes, sizes[1:])))
        )
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.running_mean, -0.2, 0.2)
                nn.init.uniform_(module.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        parts = [f(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value)]
        y = nn.functional.scaled_dot_product_attention(*parts, attn_mask=bias)
        x = self.norm1(x + self.out(y.transpose(1, 2).flatten(2)))
        return self.norm2(x + self.narrow(nn.functional.gelu(self.wide(x))))


class Bert(nn.Module):
    """An encoder of the form of BERT: embeddings of words, places and kinds, then post-norm layers, a pooled first
    token."""

    def __init__(self, words: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(words, width), nn.Embedding(2, width)
        self.places = nn.Embedding(64, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: torch.Tensor, kinds: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.words(ids) + self.kinds(kinds) + self.places(torch.arange(ids.shape[1]))
        x = self.norm(x)
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, bias)
        return x, torch.tanh(self.pooler(x[:, 0]))


def test_resnet_18() -> None:
    recorded = agree(ResNet(8, 10).eval(), torch.randn(2, 3, 64, 64))
    assert recorded.compiled == 1


def test_bert() -> None:
    ids = torch.randint(0, 50, (2, 17))
    mask = torch.ones(2, 17, dtype=torch.long)
    mask[1, 11:] = 0
    recorded = agree(Bert(50, 32, 4, 2).train(False), ids, torch.zeros_like(ids), mask)
    assert recorded.compiled >= 1


def test_every_shape_has_a_library_and_an_old_one_is_found() -> None:
    net, recorded = nn.Sequential(nn.Linear(7, 5), nn.ReLU()).eval(), Recorded()
    for rows in (1, 3, 11, 3, 1):
        agree(net, torch.randn(rows, 7), recorded=recorded)
    assert recorded.compiled == 3


def test_memory_is_shared_both_ways() -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool):
        tensor = torch.arange(6).reshape(2, 3).to(dtype)
        array = array_of(tensor)
        assert array.ctypes.data == tensor.data_ptr() and array.dtype.name == str(dtype).split(".")[1]
        back = tensor_of(array)
        assert back.data_ptr() == tensor.data_ptr() and back.dtype == dtype and torch.equal(back, tensor)


def test_a_call_copies_no_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    from halotile.compiler.model import Model

    seen: dict[str, Any] = {}
    call = Model.__call__

    def spied(self: Any, inputs: Any, *more: Any, **named: Any) -> Any:
        seen["in"] = [a.ctypes.data for a in inputs.values()]
        results = call(self, inputs, *more, **named)
        seen["out"] = [a.ctypes.data for a in results.values()]
        return results

    monkeypatch.setattr(Model, "__call__", spied)
    net, x = nn.Linear(64, 64).eval(), torch.randn(33, 64)
    with torch.no_grad():
        y = torch.compile(net, backend=backend.halotile)(x)
    assert seen == {"in": [x.data_ptr()], "out": [y.data_ptr()]}


def test_weights_that_change_are_seen() -> None:
    net, recorded, x = nn.Linear(5, 4).eval(), Recorded(), torch.randn(3, 5)
    agree(net, x, recorded=recorded)
    with torch.no_grad():
        net.weight.mul_(-2)
    agree(net, x, recorded=recorded)
    net.load_state_dict(nn.Linear(5, 4).state_dict())
    agree(net, x, recorded=recorded)
    assert recorded.compiled == 1  # of the weights as they are now


class Function(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def write(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


@pytest.mark.parametrize(
    "function, why",
    [
        (lambda x: x + torch.rand_like(x) * 0, "random"),
        (write, "writes to its input"),
        (lambda x: x.t(), "memory of an input"),
        (lambda x: torch.fft.fft(x).real.contiguous(), ""),
        (lambda x: torch.linalg.inv(x[:3, :3] + 9 * torch.eye(3)) @ x[:3], ""),
    ],
    ids=["random", "in place", "view", "complex", "inverse"],
)
def test_what_cant_be_compiled_is_handed_back_by_name(
    function: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    x, recorded = torch.randn(4, 4), Recorded()
    compiled = torch.compile(Function(function), backend=recorded)
    with caplog.at_level(logging.WARNING, "halotile.torch"), torch.no_grad():
        mine, other = x.clone(), x.clone()
        for _ in range(2):
            torch.testing.assert_close(compiled(mine), function(other))
        torch.testing.assert_close(mine, other)
    handed = [g for g in recorded.graphs if g.handed_back is not None]
    if handed or why:
        (told,) = [r.getMessage() for r in caplog.records]
        assert why in told and "operator" in told and "handed back to torch" in told and "\n" not in told


def test_gradients_are_pytorchs(caplog: pytest.LogCaptureFixture) -> None:
    net, x = nn.Linear(5, 4), torch.randn(3, 5)
    compiled = torch.compile(net, backend=backend.halotile)
    with caplog.at_level(logging.WARNING, "halotile.torch"):
        compiled(x).sum().backward()
    assert net.weight.grad is not None and "needs gradients" in caplog.text
    agree(net, x)


def test_strides_and_results_that_are_no_tensors() -> None:
    recorded = agree(Function(lambda x: (torch.relu(x).permute(0, 2, 3, 1), x.exp())), torch.randn(2, 3, 4, 5))
    assert recorded.compiled == 1
    last = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    agree(nn.Conv2d(3, 4, 3).eval(), last)


def test_pieces_of_a_function_that_breaks_in_two() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        torch._dynamo.graph_break()
        return y @ y.T + 1

    assert agree(broken, torch.randn(3, 4)).compiled == 2


def test_options_are_those_of_compile() -> None:
    recorded = agree(nn.Linear(5, 4).eval(), torch.randn(3, 5), options={"threads": 2, "exact": True})
    assert recorded.graphs[0].options == {"threads": 2, "exact": True} and recorded.compiled == 1
    with pytest.raises(Exception, match="no option 'treads'"):
        agree(nn.Linear(5, 4).eval(), torch.randn(3, 5), options={"treads": 2})


def test_inference_mode_and_half_precision() -> None:
    net, x = nn.Linear(16, 8).eval().to(torch.bfloat16), torch.randn(3, 16).to(torch.bfloat16)
    with torch.inference_mode():
        found = torch.compile(net, backend=backend.halotile)(x)
        wanted = net.float()(x.float())
    assert found.dtype == torch.bfloat16
    np.testing.assert_allclose(found.float(), wanted, rtol=2**-7, atol=2**-7)


def test_pytorch_finds_the_backend_by_its_name() -> None:
    file = Path(__file__).resolve().parents[2] / "pyproject.toml"
    points = tomllib.loads(file.read_text())["project"]["entry-points"]["torch_dynamo_backends"]
    module, _, name = points["halotile"].partition(":")
    assert getattr(importlib.import_module(module), name) is backend.halotile
