"""Convolutions on a matrix unit: float32 as products of bf16 parts, and int8."""
