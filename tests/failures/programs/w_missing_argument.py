# reason: semantic-error
from dataclasses import dataclass


@dataclass
class Batch:
    tokens: list
    mask: list


Batch([1, 2])
