"""Clients of the manager: how it is found and asked, and the Python client on top of that."""
