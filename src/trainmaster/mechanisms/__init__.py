"""What at least two policies use: verbs on a Draft, shared policy bases, shares and starvation."""
