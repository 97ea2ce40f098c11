"""A product and a sum in a map become one instruction: what the processor has for that is in the kernel's code."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.targets import llvm
from tvm import relax

R = relax.op
F = "float32"
FUSED = {"x86_64": r"vfn?m(add|sub)\d+ps", "aarch64": r"\bfml[as]\b", "armv7l": r"\bvfm[as]\.f32"}
PLAIN = {"x86_64": r"vmulps", "aarch64": r"\bfmul\b", "armv7l": r"\bvmul\.f32"}

BODIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "x * y + z": (lambda x, y, z: R.add(R.multiply(x, y), z), lambda x, y, z: x * y + z),
    "z - x * y": (lambda x, y, z: R.subtract(z, R.multiply(x, y)), lambda x, y, z: z - x * y),
    "x * scale + y": (lambda x, y, z: R.add(R.multiply(x, weight(np.float32(3))), y), lambda x, y, z: x * 3 + y),
}


@pytest.mark.skipif(shutil.which("objdump") is None, reason="NOT RUN: needs objdump")
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("shape", [(4, 32, 8), (3, 7, 11)])
def test_products_and_sums_are_fused(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    arch = llvm.architecture(native().triple)
    if arch == "x86_64" and "fma" not in llvm.features(arch, native().cpu, native().features):
        pytest.skip("this processor has no fused multiply-add")
    body, reference = BODIES[name]
    arrays = [np.random.default_rng(i).standard_normal(shape).astype(F) for i in range(3)]
    compiled = Compiled(staged(module_of(arrays, body)))
    assert [k.schedule for k in compiled.build.kernels] == ["map, plain"]
    code = ""
    for i, piece in enumerate(compiled.spec.kernel_objects):
        (tmp_path / f"{i}.o").write_bytes(piece)
        code += subprocess.run(["objdump", "-d", f"{i}.o"], cwd=tmp_path, capture_output=True, text=True).stdout
    assert re.search(FUSED[arch], code) and not re.search(PLAIN[arch], code)
    wide = [a.astype("float64") for a in arrays]
    np.testing.assert_allclose(compiled.run(arrays)[0], reference(*wide), rtol=1e-5, atol=1e-6)
