# reason: model-diverged
import torch

mean = torch.tensor([0.1, float("nan")])
action = torch.distributions.Normal(mean, torch.ones(2)).sample()
