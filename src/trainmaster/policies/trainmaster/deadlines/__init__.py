"""Which deadlines can be met, and how commitments are kept."""
