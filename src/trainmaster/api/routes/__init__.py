"""The pages of the API, by subject."""
