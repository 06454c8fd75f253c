# reason: permission-error
"""A file that must not be run is run."""

import os

os.execv(__file__, [__file__])
