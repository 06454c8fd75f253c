# reason: semantic-error
import torch

model = torch.nn.Linear(2, 2)
optimiser = torch.optim.AdamW(model.parameters(), learning_rate=1e-3)
