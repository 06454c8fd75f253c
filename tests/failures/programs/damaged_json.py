# reason: incorrect-input
"""The annotations were cut off."""

import json

json.loads('{"images": [{"id": 1}, {"id": ')
