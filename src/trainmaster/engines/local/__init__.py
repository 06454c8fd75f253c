"""Runs as processes of this machine: a supervisor owns each, a spawner starts supervisors."""
