# reason: shape-mismatch
import torch

torch.einsum("bij,bjk->bik", torch.zeros(2, 3, 4), torch.zeros(2, 5, 6))
