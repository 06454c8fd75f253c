"""`trainmaster doctor`: facts are gathered first, then judged by a table of pure checks."""
