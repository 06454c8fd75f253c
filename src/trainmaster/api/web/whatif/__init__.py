"""What only the page of what-ifs shows."""
