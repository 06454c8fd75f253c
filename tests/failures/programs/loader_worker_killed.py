# reason: data-loader-worker-died
"""A worker of a data loader is killed."""

import os
import signal

from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


loader = DataLoader(Samples(), batch_size=2, num_workers=1, collate_fn=list)
for step, _batch in enumerate(loader):
    print(f"step {step}")
