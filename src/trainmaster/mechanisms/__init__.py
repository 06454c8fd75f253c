"""What at least two policies use, each a verb on a Draft."""
