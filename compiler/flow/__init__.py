"""Loops and branches of run time: their bodies as programs of their own, and the kernel that runs them."""
