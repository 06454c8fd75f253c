"""Live state put into the simulator: when will it start, what would another policy do."""
