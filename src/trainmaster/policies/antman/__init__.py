"""AntMan (OSDI'20): guaranteed jobs by quota, opportunistic jobs beside them."""
