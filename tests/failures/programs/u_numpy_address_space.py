# reason: host-out-of-memory
import resource

import numpy as np

print("loading features")
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
features = np.ones((2_000_000, 4096), dtype=np.float32)
