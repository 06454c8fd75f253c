"""Where runs really are: engines take orders and report what became of them."""
