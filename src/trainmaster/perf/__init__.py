"""What a simulated cluster does to jobs: speed by placement, interference, costs. Mathematics only."""
