"""Comparing policies as a reviewer would want it: suites of experiments, their trials and scores."""
