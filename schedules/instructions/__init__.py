"""Instructions that kernels name: the matrix unit and its bf16 parts, dot products of bytes, prefetches."""
