# reason: bad-arguments
from pydantic import BaseModel


class TrainConfig(BaseModel):
    epochs: int
    lr: float


TrainConfig(epochs="many", lr=0.1)
