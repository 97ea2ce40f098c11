"""Streams: a network of any height computed from rows that come and go piece by piece."""
