"""What the manager knows of the policy lab without loading what simulates: its program, bounds and report."""

from __future__ import annotations

PROGRAM = "trainmaster.whatif.policy_lab"
MOST_JOBS = 50_000
MOST_GPUS = 20_000
REPORT = "report.zip"
