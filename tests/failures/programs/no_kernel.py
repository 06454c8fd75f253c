# reason: cuda-version-mismatch
"""The build is not for this GPU."""

raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
