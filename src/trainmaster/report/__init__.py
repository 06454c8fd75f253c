"""A comparison of policies as one HTML page, with its plots as PNG and its numbers as CSV (`page.py`)."""
