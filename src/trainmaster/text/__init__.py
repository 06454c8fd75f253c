"""Text for users: numbers, durations, waiting reasons, messages."""
