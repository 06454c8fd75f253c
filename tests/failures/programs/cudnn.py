# reason: cuda-library-error
"""cuDNN fails."""

raise RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED")
