# reason: shape-mismatch
import torch
from torch.utils.data import DataLoader, Dataset


class Ragged(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.zeros(3 + i)


for batch in DataLoader(Ragged(), batch_size=4, num_workers=1):
    print(batch.shape)
