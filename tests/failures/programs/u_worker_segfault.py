# reason: data-loader-worker-died
import ctypes

from torch.utils.data import DataLoader, Dataset


class Broken(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return ctypes.string_at(0)


for batch in DataLoader(Broken(), batch_size=4, num_workers=1):
    print(batch)
