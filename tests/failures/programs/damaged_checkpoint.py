# reason: checkpoint-error
"""A checkpoint was cut off when it was written."""

import tempfile
from pathlib import Path

import torch

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "last.pt"
    torch.save({"weights": torch.randn(1000)}, file)
    file.write_bytes(file.read_bytes()[:-200])
    torch.load(file)
