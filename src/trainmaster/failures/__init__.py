"""What a failed run means, and what is done about it: pure rules for the manager and the simulator."""
