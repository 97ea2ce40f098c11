"""The general generator, for every group that no family takes: phases of TE stages as vectorised loop nests."""
