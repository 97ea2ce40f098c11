"""From a float32 model and sample inputs to the same model in bytes, by ONNX Runtime's quantiser.

    samples.py   files or arrays -> the inputs of each sample
    prepare.py   model -> model with shapes, batch norms folded, an opset that has scales for each channel
    ranges.py    model and samples -> what values each tensor takes
    apply.py     model and ranges -> model with QuantizeLinear and DequantizeLinear
    plan.py      all of it, and which layers stay in float32 for an error to be kept: what a manifest records
"""
