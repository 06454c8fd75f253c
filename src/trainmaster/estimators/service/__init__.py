"""How much service (GPUs x time) jobs take, learned from those that ended and those that still run."""
