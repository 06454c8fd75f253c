# reason: semantic-error
import torch

torch.nn.Linear(4, 2)(torch.zeros(3, 4, dtype=torch.long))
