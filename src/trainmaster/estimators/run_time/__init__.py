"""How long a job still runs, by earlier runs of its program, with intervals learned from past forecasts."""
