from .numbers import Numbers as Numbers
