"""Single messages, one or two for most rows: after a traceback, or as lines of their own."""

from __future__ import annotations

import pytest

from tests.failures import scores

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 9, in <module>',
    "    go()",
)

RAISED = [
    ("syntax-error", "IndentationError: unexpected indent"),
    (
        "cuda-library-error",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ),
    ("invalid-device", "RuntimeError: CUDA error: invalid device ordinal"),
    ("interrupted", "KeyboardInterrupt"),
    (
        "host-out-of-memory",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB for an array with shape (100000, 1000000) and data type float64",
    ),
    (
        "host-out-of-memory",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB for an array",
    ),
    (
        "file-limit",
        "RuntimeError: Too many open files. Communication with the workers is no longer possible. Please increase the limit using `ulimit -n`",
    ),
    (
        "shape-mismatch",
        "RuntimeError: stack expects each tensor to be equal size, but got [3, 224, 224] at entry 0 and [3, 256, 224] at entry 1",
    ),
    ("semantic-error", "RuntimeError: Found dtype Double but expected Float"),
    (
        "shape-mismatch",
        "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 64])",
    ),
    ("model-diverged", "ValueError: loss is NaN at step 12"),
    ("model-diverged", "RuntimeError: Training diverged: loss=inf"),
    ("model-diverged", "AssertionError: Loss became NaN"),
    ("assertion-error", "AssertionError"),
    (
        "shared-memory-full",
        "RuntimeError: unable to write to file </torch_18692_1954506624>: No space left on device (28)",
    ),
    (
        "shared-memory-full",
        "RuntimeError: unable to open shared memory object </torch_29919_1396182366> in read-write mode",
    ),
    ("permission-error", "PermissionError: [Errno 13] Permission denied: '/data/private/x.npy'"),
    (
        "bad-arguments",
        'yaml.scanner.ScannerError: mapping values are not allowed here\n  in "cfg.yaml", line 3, column 9',
    ),
    ("checkpoint-mismatch", "KeyError: 'model_state_dict'"),
    (
        "invalid-device",
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.",
    ),
    ("cuda-init-failed", "RuntimeError: No CUDA GPUs are available"),
    ("cuda-init-failed", "RuntimeError: Found no NVIDIA driver on your system."),
    (
        "nccl-error",
        "RuntimeError: NCCL Error 2: unhandled system error (run with NCCL_DEBUG=INFO for details)",
    ),
    (
        "semantic-error",
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
    ),
    (
        "semantic-error",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    ),
    (
        "cuda-out-of-memory",
        "tensorflow.python.framework.errors_impl.InternalError: CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory",
    ),
    (
        "cuda-out-of-memory",
        "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB",
    ),
    ("storage-error", "OSError: [Errno 116] Stale file handle: '/nfs/data/x.bin'"),
    ("storage-error", "OSError: [Errno 5] Input/output error"),
    (
        "network-error",
        "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read timeout=10)",
    ),
    (
        "network-error",
        "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
    ),
    (
        "authentication-error",
        "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
    ),
    ("checkpoint-error", "_pickle.UnpicklingError: invalid load key, 'v'."),
    ("incorrect-input", "PIL.UnidentifiedImageError: cannot identify image file '/data/a.jpg'"),
    (
        "incorrect-input",
        "ValueError: num_samples should be a positive integer value, but got num_samples=0",
    ),
    ("index-out-of-range", "IndexError: Target 10 is out of bounds."),
    ("index-out-of-range", "IndexError: list index out of range"),
    ("semantic-error", "TypeError: forward() missing 1 required positional argument: 'mask'"),
    ("data-loader-worker-died", "RuntimeError: DataLoader worker (pid(s) 123) exited unexpectedly"),
    (
        "cuda-library-error",
        "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution",
    ),
    ("gpu-xid-error", "RuntimeError: CUDA error: unknown error"),
    ("cuda-error", "RuntimeError: CUDA error: the launch timed out and was terminated"),
    (
        "cuda-version-mismatch",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
    ),
    (
        "semantic-error",
        "RuntimeError: [1]: params[0] in this process with sizes [10, 5] appears not to match sizes of the same param in process 0.",
    ),
    (
        "unknown",
        "ValueError: Cannot use chat template functions because tokenizer.chat_template is not set",
    ),
    ("unknown", "RuntimeError: plan B was needed"),
    ("import-error", "ImportError: cannot import name 'x' from 'y' (/lib/y.py)"),
    (
        "library-not-loaded",
        "OSError: libcudnn.so.9: cannot open shared object file: No such file or directory",
    ),
    ("mpi-error", "mpi4py.MPI.Exception: MPI_ERR_TRUNCATE: message truncated"),
    (
        "rendezvous-timeout",
        "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (node1, 29500).",
    ),
    ("process-limit", "RuntimeError: can't start new thread"),
    ("missing-file", "FileNotFoundError: Couldn't find any data file at /data/set."),
    ("model-diverged", "ValueError: The loss returned in `training_step` is nan or inf."),
    (
        "invalid-device",
        "lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!",
    ),
    ("unknown", "RuntimeError: cutlassF: no kernel found to launch!"),
]
WRITTEN = [
    ("import-error", 1, "ERROR: No module named 'apex'. Install it first."),
    ("import-error", 1, "loading\n2026-11-17 04:00:00 ERROR No module named 'yaml'\nexiting"),
    ("import-error", 1, "/usr/bin/python3: No module named train"),
    (
        "unknown",
        1,
        "Could not import the plugin: No module named 'wandb'\naccuracy below the target",
    ),
    ("unknown", 1, "warning: No module named 'apex', using plain Adam\naccuracy too low"),
    ("command-not-found", 127, "bash: line 1: foo: command not found"),
    ("command-not-found", 127, "sh: 1: trian.sh: not found"),
    (
        "syntax-error",
        1,
        "  File \"train.py\", line 3\n    def f(\n         ^\nSyntaxError: '(' was never closed",
    ),
    (
        "illegal-memory-access",
        1,
        "[  812.1] NVRM: Xid (PCI:0000:65:00): 31, pid=4242, name=python, Ch 00000008, intr 10000000. MMU Fault",
    ),
    (
        "gpu-ecc-error",
        1,
        "[  812.1] NVRM: Xid (PCI:0000:65:00): 94, pid=4242, Contained: SM (0x1).",
    ),
    (
        "gpu-xid-error",
        1,
        "[  812.1] NVRM: Xid (PCI:0000:65:00): 74, NVLink: fatal error detected on link 4",
    ),
    (
        "library-not-loaded",
        134,
        "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file: No such file or directory\nAborted",
    ),
    (
        "time-limit",
        1,
        "slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
    ),
    ("core-dump", 135, "Bus error (core dumped)"),
    (
        "bad-arguments",
        1,
        "Could not override 'lr'.\nTo append to your config use +lr=0.1\nKey 'lr' is not in struct\n    full_key: lr",
    ),
    (
        "bad-arguments",
        2,
        "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option: --foo",
    ),
    (
        "core-dump",
        139,
        "mpirun noticed that process rank 0 with PID 0 on node x exited on signal 11 (Segmentation fault).",
    ),
    (
        "host-out-of-memory",
        134,
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
    ),
    (
        "traceback-from-crash",
        134,
        "terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector::_M_range_check",
    ),
    ("driver-library-mismatch", 1, "Failed to initialize NVML: Driver/library version mismatch"),
    ("mpi-runtime-failure", 1, "ORTE has lost communication with a remote daemon."),
]


@pytest.mark.parametrize(("reason", "message"), RAISED)
def test_an_exception(reason: str, message: str) -> None:
    found = scores.case("", reason, 1, [*TRACEBACK, *message.splitlines()]).found
    assert found.reason == reason


@pytest.mark.parametrize(("reason", "code", "lines"), WRITTEN)
def test_lines_without_a_traceback(reason: str, code: int, lines: str) -> None:
    assert scores.case("", reason, code, lines.splitlines()).found.reason == reason
