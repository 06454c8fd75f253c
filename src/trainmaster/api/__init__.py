"""The manager over HTTP."""
