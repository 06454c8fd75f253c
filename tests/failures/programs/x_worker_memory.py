# reason: host-out-of-memory
import resource

from torch.utils.data import DataLoader


class Rows:
    def __len__(self):
        return 4

    def __getitem__(self, i):
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        return bytearray(1 << 35)


for _ in DataLoader(Rows(), num_workers=1):
    pass
