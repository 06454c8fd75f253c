"""`python -m trainmaster` is `trainmaster`."""

from trainmaster.cli.main import run

run()
