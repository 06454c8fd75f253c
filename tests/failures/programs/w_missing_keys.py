# reason: checkpoint-mismatch
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)


Net().load_state_dict({"encoder.weight": torch.zeros(2, 2), "encoder.bias": torch.zeros(2)})
