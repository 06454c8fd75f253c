# reason: semantic-error
from torch.utils.data import DataLoader


class Rows:
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return 1 / i


for _ in DataLoader(Rows(), num_workers=1):
    pass
