# reason: import-error
"""A module has another version."""

from json import load_all  # noqa: F401
