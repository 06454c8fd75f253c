"""Big Brain: several jobs on one GPU, as many as measurements show to be best."""
