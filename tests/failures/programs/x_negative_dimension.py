# reason: semantic-error
import torch

layer = torch.nn.Linear(4, -2)
