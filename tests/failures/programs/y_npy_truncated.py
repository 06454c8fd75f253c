# reason: incorrect-input
import pathlib
import tempfile

import numpy as np

path = pathlib.Path(tempfile.mkdtemp()) / "x.npy"
np.save(path, np.zeros((100, 100)))
path.write_bytes(path.read_bytes()[:500])
np.load(path)
