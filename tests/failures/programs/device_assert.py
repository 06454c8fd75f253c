# reason: device-side-assert
"""A label is larger than the number of classes."""

import sys

sys.stderr.write(
    "/pytorch/aten/src/ATen/native/cuda/Loss.cu:245: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread:"
    " [7,0,0] Assertion `t >= 0 && t < n_classes` failed.\n"
)
raise RuntimeError("CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA`")
