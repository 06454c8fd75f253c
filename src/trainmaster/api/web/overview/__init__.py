"""What only the first page shows."""
