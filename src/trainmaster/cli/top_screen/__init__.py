"""What `trainmaster top` shows, and how it stays up to date."""
