"""Where: pure functions from free GPUs and a shape to slices. Who and how much is the policies' business."""
