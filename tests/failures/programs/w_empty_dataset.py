# reason: incorrect-input
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.zeros(0, 3))
DataLoader(data, batch_size=4, shuffle=True)
