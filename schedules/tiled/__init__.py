"""Tile groups as kernels: members that compute boxes, and a driver that calls them as a plan says."""

from .build import TiledKernel, build_tiled
from .support import box_alignment, box_refusal

__all__ = ["TiledKernel", "box_alignment", "box_refusal", "build_tiled"]
