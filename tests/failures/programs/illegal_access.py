# reason: illegal-memory-access
"""A kernel writes out of bounds."""

raise RuntimeError(
    "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported at"
    " some other API call, so the stacktrace below might be incorrect."
)
