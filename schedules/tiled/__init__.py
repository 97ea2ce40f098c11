"""Tile groups as kernels: members that compute boxes, and a driver that calls them as a plan says."""

from .box_support import box_alignment, box_refusal
from .kernel import TiledKernel, build_tiled
from .open_images import build_open_images, builds_open_images
from .open_tiles import build_open_tiled
from .sizes import PartSizes, sized_open_tiled, sized_tiled

__all__ = [
    "PartSizes",
    "TiledKernel",
    "box_alignment",
    "box_refusal",
    "build_open_images",
    "build_open_tiled",
    "build_tiled",
    "builds_open_images",
    "sized_open_tiled",
    "sized_tiled",
]
