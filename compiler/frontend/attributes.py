"""Attributes that have few values: what else a node holds there is refused by name, and never taken for one of them.

    ScatterElements(reduction="bogus")     its attribute reduction is 'bogus'; it must be none, add, mul, max or min
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_WINDOWS = "AveragePool Conv ConvInteger ConvTranspose LpPool MaxPool QLinearConv QLinearAveragePool FusedConv"
_POSITIONS = (
    "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_crop_and_resize "
    "tf_half_pixel_for_nn"
)

#: Words by attribute and operators; an empty one is as none.
_WORDS = {
    ("activation", "CausalConvWithState"): "none silu swish",
    ("aggregate_function", "TreeEnsembleRegressor"): "AVERAGE SUM MIN MAX",
    ("approximate", "Gelu"): "none tanh",
    ("auto_pad", _WINDOWS): "NOTSET SAME_UPPER SAME_LOWER VALID",
    ("coordinate_transformation_mode", "Resize"): _POSITIONS,
    ("coordinate_transformation_mode", "RoiAlign"): "half_pixel output_half_pixel",
    ("direction", "BitShift"): "LEFT RIGHT",
    ("direction", "GRU LSTM RNN DynamicQuantizeLSTM"): "forward reverse bidirectional",
    ("keep_aspect_ratio_policy", "Resize"): "stretch not_larger not_smaller",
    ("mode", "DepthToSpace SpaceToDepth"): "DCR CRD",
    ("mode", "GridSample"): "linear nearest cubic bilinear bicubic",
    ("mode", "Pad"): "constant reflect edge wrap",
    ("mode", "Resize"): "nearest linear cubic",
    ("mode", "Upsample"): "nearest linear bilinear",
    ("mode", "RoiAlign"): "avg max",
    ("mode", "TensorScatter"): "linear circular",
    ("nearest_mode", "Resize"): "round_prefer_floor round_prefer_ceil floor ceil",
    ("norm", "Normalizer"): "MAX L1 L2",
    ("padding_mode", "GridSample"): "zeros border reflection",
    ("post_transform", "LinearClassifier LinearRegressor TreeEnsembleClassifier TreeEnsembleRegressor"): (
        "NONE SOFTMAX LOGISTIC SOFTMAX_ZERO PROBIT"
    ),
    ("reduction", "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"): "none sum mean",
    ("reduction", "ScatterElements ScatterND"): "none add mul max min",
    ("round_mode", "Cast CastLike"): "up down nearest",
    ("update_rule", "LinearAttention"): "linear gated delta gated_delta",
}

_NUMBERS = {
    ("aggregate_function", "TreeEnsemble"): range(4),
    ("batch_axis", "ReverseSequence"): range(2),
    ("time_axis", "ReverseSequence"): range(2),
    ("p", "LpNormalization"): range(1, 3),
    ("post_transform", "TreeEnsemble"): range(5),
    ("qk_matmul_output_mode", "Attention"): range(4),
    ("size", "LRN"): range(1, 1 << 31, 2),
}

#: What is on or off, of whatever operator.
FLAGS = frozenset(
    "align_corners allowzero antialias broadcast ceil_mode center_point_box count_include_pad detect_negative "
    "detect_positive do_rotary exclude_outside exclusive fmod input_forget interleaved inverse is_causal keepdims "
    "largest layout linear_before_reset new_axis noop_with_empty_axes onesided periodic reverse rotary_interleaved "
    "saturate select_last_index sorted spatial storage_order training_mode transA transB unidirectional upper "
    "zeros".split()
)


def _by_name(table: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    return {(name, operator): values for (name, operators), values in table.items() for operator in operators.split()}


CLOSED: dict[tuple[str, str], tuple[str, ...]] = _by_name({k: tuple(v.split()) for k, v in _WORDS.items()} | _NUMBERS)


def unknown_value(operator: str, attributes: Mapping[str, object]) -> str | None:
    """What is wrong with the first attribute that holds none of the few values that it can have."""
    for name, value in attributes.items():
        allowed = CLOSED.get((name, operator), range(2) if name in FLAGS else None)
        if allowed is None or value == "" or value in allowed:
            continue
        return f"its attribute {name} is {value!r}; it must be {_listed(allowed)}"
    return None


def _listed(values: Sequence[object]) -> str:
    if isinstance(values, range) and len(values) > 9:
        return f"one of {', '.join(map(str, values[:3]))} ..."
    *most, last = map(str, values)
    return f"{', '.join(most)} or {last}"
