"""Big Brain: several jobs on one GPU, as many as were seen to pay."""
