# reason: library-not-loaded
import ctypes

ctypes.CDLL("libcudart.so.99")
