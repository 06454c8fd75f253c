"""The deciding machine: facts in, orders out. Pure: no clock, no file, no unseeded chance."""
