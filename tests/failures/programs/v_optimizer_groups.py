# reason: checkpoint-mismatch
import torch

one, two = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
saved = torch.optim.Adam(one.parameters()).state_dict()
groups = [{"params": two.weight}, {"params": two.bias}]
torch.optim.Adam(groups).load_state_dict(saved)
