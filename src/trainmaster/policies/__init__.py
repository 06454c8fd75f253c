"""Who and how much: one file per published system, its paper and its deviations in the docstring."""
