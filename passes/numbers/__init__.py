from .numbers import Numbers as Numbers
from .products import ProductsOfBytes as ProductsOfBytes
