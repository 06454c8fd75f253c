# reason: missing-file
import torch

state = torch.load("/checkpoints/run-17/last.pt", map_location="cpu")
