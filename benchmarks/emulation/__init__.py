"""Programs for 64-bit ARM under an emulator: instructions counted exactly, caches simulated, cycles estimated."""
