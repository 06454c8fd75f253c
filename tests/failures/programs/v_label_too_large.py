# reason: index-out-of-range
import torch

logits, labels = torch.zeros(4, 10), torch.tensor([1, 2, 10, 3])
torch.nn.functional.cross_entropy(logits, labels)
