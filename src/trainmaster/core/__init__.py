"""State, plans and their checks: facts in, orders out. Pure: no clock, no file, no unseeded random number."""
