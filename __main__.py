"""``python -m halotile`` is the command line too."""

from .compiler.cli.alone import entry

if __name__ == "__main__":
    entry()
