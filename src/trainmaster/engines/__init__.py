"""Engines: they carry out orders and report what happened to the runs."""
