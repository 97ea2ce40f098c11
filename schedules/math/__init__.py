"""Functions of numbers as arithmetic that compiles into vectors, and narrow forms of weights."""
