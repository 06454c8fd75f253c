# reason: assertion-error
"""The program finds its own assumption wrong."""

world = 3
assert 8 % world == 0, "the batch cannot be divided among the ranks"
