# reason: cuda-init-failed
"""The driver does not answer."""

raise RuntimeError(
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that"
    " might have already set an error? Error 802: system not yet initialized"
)
