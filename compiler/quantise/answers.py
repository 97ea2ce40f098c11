"""What ONNX Runtime answers for sample inputs, without rewrites of its own.

    for outputs in answers(model, samples): ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx

from ...errors import UnsupportedError
from .prepare import onnxruntime


def answers(model: onnx.ModelProto, samples: Sequence[Mapping[str, np.ndarray]]) -> Iterator[list[np.ndarray]]:
    """The outputs of ``model`` for each sample, in their order. Raises UnsupportedError for a model that ONNX Runtime
    can't load, or can't run at the samples' sizes."""
    runtime = onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL  # what the file says
    try:
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for sample in samples:
            yield session.run(None, dict(sample))
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise UnsupportedError(f"ONNX Runtime can't run the model, so its numbers are not known: {reason}") from None
