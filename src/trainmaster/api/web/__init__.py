"""The dashboard: pages for browsers, by a process of its own that is a client of the API."""
