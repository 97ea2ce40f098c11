"""Models whose dims are numbers or names: what open ones leave is compared with what their static twins leave."""

from . import algebra, exporters, masks, movement, shapes, slices
from .base import TWINS, Twin

__all__ = ["TWINS", "Twin", "algebra", "exporters", "masks", "movement", "shapes", "slices"]
