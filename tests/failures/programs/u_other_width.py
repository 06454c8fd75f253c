# reason: checkpoint-mismatch
import torch

saved = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()).state_dict()
torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU()).load_state_dict(saved)
