"""The manager in real time: drives the controller, keeps its log, recovers, watches."""
