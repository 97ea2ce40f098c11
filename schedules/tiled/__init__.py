"""Tile groups as kernels: members that compute boxes, and a driver that calls them as a plan says."""

from .build import TiledKernel, build_tiled
from .size import PartSizes, sized_tiled
from .striped import StripedKernel, build_striped
from .support import box_alignment, box_refusal

__all__ = [
    "PartSizes",
    "StripedKernel",
    "TiledKernel",
    "box_alignment",
    "box_refusal",
    "build_striped",
    "build_tiled",
    "sized_tiled",
]
