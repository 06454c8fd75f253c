# reason: driver-library-mismatch
"""The driver was updated and not loaded again."""

raise RuntimeError("Failed to initialize NVML: Driver/library version mismatch")
