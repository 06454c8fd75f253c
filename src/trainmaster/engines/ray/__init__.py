"""The engine of a Ray cluster: one launcher on each node runs gangs there, as the local engine does."""
