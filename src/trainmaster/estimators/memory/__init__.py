"""Peak GPU memory of a training program: formulas, and a model of PyTorch's caching allocator."""
