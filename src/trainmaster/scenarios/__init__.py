"""What users say of a simulation, as its inputs: cluster, policies and their options, queues, failures."""
