"""Peak memory of training programs on a real GPU, to compare with what is predicted from the program alone.

    python3 -m benchmarks.gpu.memory --out DIR

`user_*.py` are written as a researcher writes a training script and import nothing but torch. Each has
`make_model()`, `make_batch(n)` (a batch of n samples on the host, as a loader yields it) and
`compute_loss(model, batch)`, and trains for a few steps when it is run.
"""
