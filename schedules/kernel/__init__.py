"""A kernel under construction: its context, its registers, its share of the cores; kernels built before."""
