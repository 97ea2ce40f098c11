"""One self-contained HTML page about a model as it is compiled: what was decided, measured and planned, in pictures."""
