"""Which input rows an output row needs, found from the exact regions, and images computed tile by tile."""
