from .numbers import NumbersPass as NumbersPass
from .products import ProductsOfBytes as ProductsOfBytes
