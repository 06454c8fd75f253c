"""Virtual time: a driver and a simulated engine around the controller, and their measurements."""
