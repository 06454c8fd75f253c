"""The project's own case: the goal for `trainmaster`, what papers claim, what each part is worth."""
