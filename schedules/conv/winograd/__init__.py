"""Convolutions by Winograd's minimal filtering: transforms, products between them, plans and their costs."""
