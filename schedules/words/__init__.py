"""What both sides of a stage say: groups, layouts, plans of tiles and stripes, candidates, provenance."""
