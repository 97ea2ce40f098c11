"""Facts about machines, as data: what a board, a processor or this very machine offers to a schedule."""
