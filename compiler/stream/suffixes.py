"""The endings of files that streams read and write, apart from what reads them, which --help has no need of."""

SUFFIXES = (".npy", ".zarr", ".tif", ".tiff", ".raw", ".bin")
