# reason: incorrect-input
import json
import pathlib
import tempfile

path = pathlib.Path(tempfile.mkdtemp()) / "annotations.json"
path.write_text('{"images": [1, 2,')
annotations = json.load(path.open())
