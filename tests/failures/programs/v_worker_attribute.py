# reason: semantic-error
from torch.utils.data import DataLoader, Dataset


class Broken(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return self.samples[i]


next(iter(DataLoader(Broken(), num_workers=1)))
