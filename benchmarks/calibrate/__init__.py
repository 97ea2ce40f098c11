"""``halotile calibrate``: this machine as a target with constants of its own, and how far its predictions are off.

    limits.py               what the machine does at best: clock, multiply-adds, caches, memory, starts of kernels
    layers.py, samples.py   networks whose kernels are built, measured and predicted
    fit.py                  the constants that make predictions fit what was measured
    calibration.py          all of it, and errors of predictions on layers of other shapes
    board.py                a TOML file, which ``-t ./my-machine.toml`` takes
"""
