# reason: import-error
"""A module is not installed."""

import flash_attn_that_is_not_installed  # noqa: F401
