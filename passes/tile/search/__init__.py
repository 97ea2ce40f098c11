"""What to choose: where tile groups begin and end, and in what shape, by a model of cycles and bytes."""
