# reason: semantic-error
import numpy as np

np.array([1, 2, 3]) + "a"
