"""``halotile doctor``: is everything there that compiling, linking and verifying need?"""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING

from ...errors import HalotileError, several
from . import parameters
from .console import columns, emit, emit_json, size
from .verb import verb

if TYPE_CHECKING:
    from ...targets.plain import Json

Check = tuple[str, bool, Callable[[], str]]


@verb(examples=[("halotile doctor", "Is everything there that builds need?")])
@parameters.json_option
def doctor(as_json: bool) -> int:
    """Check this installation. Exit code 1 when something that every build needs is missing."""
    found = [_examine(*check) for check in _CHECKS]
    ok = all(f["ok"] or not f["required"] for f in found)
    if as_json:
        emit_json({"ok": ok, "checks": found})
    else:
        marks = {(True, True): "ok", (True, False): "ok", (False, True): "MISSING", (False, False): "absent"}
        emit(columns((marks[f["ok"], f["required"]], f["name"], f["found"]) for f in found))
    return 0 if ok else 1


def _examine(name: str, required: bool, look: Callable[[], str]) -> Json:
    try:
        return {"name": name, "required": required, "ok": True, "found": look()}
    except HalotileError as error:
        return {"name": name, "required": required, "ok": False, "found": str(error)}
    except Exception as error:  # whatever is broken here is what the user wants to be told
        lines = str(error).splitlines() or [""]
        return {
            "name": name,
            "required": required,
            "ok": False,
            "found": f"{type(error).__name__}: {lines[0]}",
        }


def _python() -> str:
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}"


def _tvm() -> str:
    import tvm

    return f"{tvm.__version__}, LLVM {tvm.target.codegen.llvm_version_major()}"


def _onnx() -> str:
    import onnx

    return f"{onnx.__version__}, up to opset {onnx.defs.onnx_opset_version()}"


def _installed(package: str, advice: str) -> Callable[[], str]:
    def look() -> str:
        if importlib.util.find_spec(package) is None:
            raise HalotileError(f"not installed; {advice}")
        return metadata.version(package)

    return look


def _compiler() -> str:
    from ...targets.resolve import resolve
    from ..codegen.toolchain import find_toolchain

    return " ".join(find_toolchain(resolve("native")).command)


def _target() -> str:
    from ...schedules.instructions.amx import has_matrix_unit
    from ...targets.resolve import resolve

    target = resolve("native")
    unit = ", matrix unit" if has_matrix_unit(target) else ""
    return f"{target.cpu}, {target.vector_bits}-bit vectors{unit}, {several(target.cores, 'core')}"


def _round_trip() -> str:
    """Compiles, loads and runs y = x + x."""
    import numpy as np
    from onnx import TensorProto, helper

    from ..api import compile

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "doctor", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    result = compile(proto, threads=1, cache=False)({"x": np.array([1, 2, 3], np.float32)})["y"]
    if result.tolist() != [2, 4, 6]:
        raise HalotileError(f"x + x of [1, 2, 3] came out as {result.tolist()}")
    return "a small model compiles, links, loads and runs"


def _cache() -> str:
    from ..cache.place import VARIABLE, cache_of_environment

    cache = cache_of_environment()
    if cache is None:
        raise HalotileError(f"off: {VARIABLE} says so, or there is no home")
    sizes = [p.stat().st_size for p in cache.folder.rglob("*") if p.is_file()]
    return f"{cache.folder}, {size(sum(sizes))} of at most {size(cache.most_bytes)}"


_CHECKS: tuple[Check, ...] = (
    ("Python", True, _python),
    ("TVM", True, _tvm),
    ("ONNX", True, _onnx),
    ("numpy", True, _installed("numpy", "pip install numpy")),
    ("C compiler", True, _compiler),
    ("native target", True, _target),
    ("round trip", True, _round_trip),
    ("cache of what was compiled", False, _cache),
    ("onnxruntime (to verify)", False, _installed("onnxruntime", "pip install onnxruntime")),
    ("ziglang (to link for boards)", False, _installed("ziglang", "pip install ziglang")),
)
