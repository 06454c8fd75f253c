# reason: model-diverged
import torch

w = torch.ones(2, requires_grad=True)
(w / 0).log().sum().backward()
w.grad.fill_(float("inf"))
torch.nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)
