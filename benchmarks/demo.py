"""``make demo``: SqueezeNet from the onnx package, with seeded weights, built, checked against ONNX Runtime, and run.

The package ships its models with every weight equal; seeded ones keep the network and give the comparison meaning.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

from ..compiler.cli.main import run
from .models import MODELS


def main(folder: Path = Path("out")) -> int:
    """Exit code of the first command that fails, or 0. Writes ``squeezenet.onnx`` and the library into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    model, library = folder / "squeezenet.onnx", folder / "squeezenet"
    onnx.save(MODELS["seeded_squeezenet"].model(), model)
    for command in (["build", str(model), "-o", str(library), "--verify", "--table"], ["run", str(library)]):
        print(f"$ halotile {' '.join(command)}", flush=True)
        code = run(command)
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
