"""What was compiled before, on disk: object code of kernels, and whole libraries."""
