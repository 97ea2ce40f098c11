"""Kernels of machines with a scratchpad: chains computed in stripes with two buffers."""
