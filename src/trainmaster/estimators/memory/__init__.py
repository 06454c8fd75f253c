"""Peak GPU memory of a training program, by a model of PyTorch's caching allocator."""
