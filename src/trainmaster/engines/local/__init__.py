"""Runs as processes of this machine: a supervisor owns each, a fork server starts supervisors."""
