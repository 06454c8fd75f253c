# reason: incorrect-input
import pathlib
import tempfile

import numpy as np

path = pathlib.Path(tempfile.mkdtemp()) / "train.npz"
path.write_bytes(b"PK\x03\x04 truncated by the proxy")
np.load(path)
