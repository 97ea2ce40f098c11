"""float32 products by a matrix unit: what it is (:mod:`.unit`), how numbers are brought into it (:mod:`.parts`)."""
