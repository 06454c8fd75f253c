"""Virtual time: a driver and a simulated engine around the controller, and what they measured."""
