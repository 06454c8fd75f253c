"""The only place that touches a GPU."""
