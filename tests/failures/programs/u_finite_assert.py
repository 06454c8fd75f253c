# reason: model-diverged
import torch

loss = torch.tensor(float("inf")) * 0
assert torch.isfinite(loss), f"loss is {loss.item()} at step 118"
