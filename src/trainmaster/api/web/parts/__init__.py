"""What at least two pages show."""
