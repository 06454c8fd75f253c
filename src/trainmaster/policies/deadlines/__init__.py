"""Deadlines: accepted at submission with a predicted finish, or declined with one that is feasible.

For `trainmaster`. After Clockwork (OSDI'20): what takes a predictable time can be promised, and what
cannot be in time is told so before, never after.
"""
