# reason: gpu-ecc-error
"""The memory of the GPU is faulty."""

raise RuntimeError(
    "CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronously reported at some"
    " other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing"
    " CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
