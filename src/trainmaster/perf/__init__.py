"""What the world does to jobs: speed by placement, interference, the cost of switching. Mathematics only."""
