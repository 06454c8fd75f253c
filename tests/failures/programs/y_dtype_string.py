# reason: semantic-error
import torch

torch.zeros(3, dtype="float16x")
