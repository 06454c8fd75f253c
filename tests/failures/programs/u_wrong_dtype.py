# reason: semantic-error
import torch

layer = torch.nn.Linear(4, 2)
layer(torch.zeros(3, 4, dtype=torch.float64))
