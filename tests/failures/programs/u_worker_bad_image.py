# reason: incorrect-input
import io

from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return Image.open(io.BytesIO(b"<html>not found</html>")).size


for batch in DataLoader(Images(), batch_size=4, num_workers=1):
    print(batch)
