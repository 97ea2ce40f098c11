"""The engines that the harness measures, each in a process of its own, and the environments that peers live in."""
