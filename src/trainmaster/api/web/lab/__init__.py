"""What the page of the policy lab shows."""
