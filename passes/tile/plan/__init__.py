"""The exact plan of a tile group, made from its form, and the checker that goes through it."""
