# reason: semantic-error
import numpy as np

mask = np.zeros(3, dtype=np.bool8)
