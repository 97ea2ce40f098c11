"""The fastest build whose outputs stay within an error: which layer is computed in which precision.

    rounding.py   model and precisions -> model whose layers round as our kernels do, for ONNX Runtime
    shares.py     what each layer, rounded alone, moves the outputs by, and what an assignment does
    times.py      what each layer is predicted to take in each precision
    search.py     both -> the assignments that no other beats in error and time
    plan.py       all of it: samples, an assignment within the limit, and why
    keep.py       build, measure, and step back until the limit is kept: what a manifest records
    wish.py       what a caller asks for, checked, and the options of the build that comes of it
"""
