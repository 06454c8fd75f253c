# reason: shape-mismatch
import numpy as np

weights, features = np.zeros((128, 10)), np.zeros((32, 64))
print((features @ weights).shape)
