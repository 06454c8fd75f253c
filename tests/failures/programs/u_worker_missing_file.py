# reason: missing-file
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        with open(f"/data/imagenet/{i:06}.jpg", "rb") as file:
            return len(file.read())


for batch in DataLoader(Files(), batch_size=4, num_workers=2):
    print(batch)
