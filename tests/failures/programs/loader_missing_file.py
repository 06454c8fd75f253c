# reason: missing-file
"""A worker of a data loader does not find a sample."""

from pathlib import Path

from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return len(Path(f"/data/imagenet/train/n0144/{index:04}.jpg").read_bytes())


for _batch in DataLoader(Samples(), batch_size=2, num_workers=1):
    pass
