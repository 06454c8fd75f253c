# reason: index-out-of-range
import torch.multiprocessing as mp


def train(rank):
    milestones = [10, 20]
    if rank == 1:
        print(milestones[rank + 1])


mp.start_processes(train, nprocs=2, start_method="fork")
