"""Plans for machines with a scratchpad: chains in double-buffered stripes, and their predicted timelines."""
