# reason: host-out-of-memory
import resource

import torch

resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


def build_replay_buffer(n):
    return torch.zeros(n, 3, 84, 84)


build_replay_buffer(1_000_000)
