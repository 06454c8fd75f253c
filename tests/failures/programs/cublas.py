# reason: cuda-library-error
"""cuBLAS fails."""

raise RuntimeError(
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n, k )`"
)
