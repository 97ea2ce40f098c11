"""Tile groups of models whose sizes are open."""
