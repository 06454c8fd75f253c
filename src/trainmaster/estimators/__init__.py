"""What a policy may learn: service, throughput, convergence."""
