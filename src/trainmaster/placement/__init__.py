"""Placement: pure functions from free GPUs and a shape to slices. Policies choose the job and the shape."""
