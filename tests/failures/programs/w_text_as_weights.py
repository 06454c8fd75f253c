# reason: checkpoint-error
import pathlib
import tempfile

import torch

path = pathlib.Path(tempfile.mkdtemp()) / "best.pt"
path.write_text("version https://git-lfs.github.com/spec/v1\n")
torch.load(path)
