# reason: disk-full
import torch

with open("/dev/full", "wb") as out:
    torch.save({"w": torch.zeros(200000)}, out)
