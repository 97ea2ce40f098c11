"""``torch.compile(backend="halotile")``: graphs of PyTorch, exported to ONNX, as libraries of ours, for inference.

The entry point ``torch_dynamo_backends`` of the package tells PyTorch where the backend is; nothing here is imported
before it is asked for.
"""
