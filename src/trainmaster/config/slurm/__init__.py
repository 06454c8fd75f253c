"""Slurm batch scripts as job files: parsed, mapped, and what is not understood listed."""
