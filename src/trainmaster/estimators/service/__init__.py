"""How much service (GPUs x time) jobs take, learned from ended and running jobs."""
