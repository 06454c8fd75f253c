"""Words for people: numbers, durations, waiting reasons, messages."""
