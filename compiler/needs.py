"""What to say where a package is not installed: one line that names what is needed, for what, and how it comes.

``halotile`` is not on a package index that every machine has, so that the line names packages that are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import ToolchainError

_ALONE = "the compiler, and only halotile-runtime is installed"
COMPILER = "pip install the halotile wheel that was built beside halotile-runtime"
_PACKAGES = {  # module -> (distribution, what for)
    "onnxruntime": ("onnxruntime", "comparing with ONNX Runtime"),
    "onnx": ("onnx", "reading ONNX models"),
    "tvm": ("apache-tvm==0.27.0.post1", "compiling"),
    "tvm_ffi": ("apache-tvm-ffi==0.1.15.post2", "compiling"),
    "torch": ("torch", "PyTorch models"),
    "onnxscript": ("onnxscript", "PyTorch models"),
    "ml_dtypes": ("ml_dtypes", "bfloat16 and 8-bit floats"),
    "msgspec": ("msgspec", "tuning"),
    "click": ("click", "the command line"),
    "rich": ("rich", "tables and progress"),
    "ziglang": ("ziglang", "linking for boards"),
    "tomli": ("tomli", "reading TOML files"),
    "unicorn": ("unicorn", "counting instructions"),
}


def missing(error: ImportError) -> ToolchainError | None:
    """What to tell of an import that failed because a package is not there; None where that is a defect of ours."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    top = error.name.partition(".")[0]
    if top == __name__.partition(".")[0]:
        return None if has_compiler() else ToolchainError(f"this needs {_ALONE}: {COMPILER}")
    if top not in _PACKAGES:
        return None
    package, purpose = _PACKAGES[top]
    return ToolchainError(f"{purpose} needs {top}, which is not installed: pip install {package}")


def has_compiler() -> bool:
    """Whether the compiler is installed, or the runtime alone."""
    from importlib.util import find_spec

    return find_spec(f"{__package__}.api") is not None


@contextmanager
def needed(what: str) -> Iterator[None]:
    """Around imports of parts of the compiler: ToolchainError that says ``what`` needs them, where they are missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if has_compiler() or (error.name or "").partition(".")[0] != __name__.partition(".")[0]:
            raise
        raise ToolchainError(f"{what} needs {_ALONE}: {COMPILER}") from None
