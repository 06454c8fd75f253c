"""What a training program may import. Only the standard library is needed."""
