# reason: library-not-loaded
"""A library of CUDA is missing."""

import ctypes

ctypes.CDLL("libcudart.so.99")
