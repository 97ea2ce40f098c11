"""Direct convolutions: register tiles of outputs, loops over channels and taps."""
