"""`hydra/launcher=trainmaster`."""
