"""Which variables of the submitter's shell go along with a job, so that it runs as it would run there."""

from __future__ import annotations

import re
from collections.abc import Mapping

PROGRAMS = (
    *("PATH", "VIRTUAL_ENV", "CONDA_*", "MAMBA_*", "PYTHON*", "LD_LIBRARY_PATH", "LIBRARY_PATH"),
    *("CPATH", "MODULEPATH", "LOADEDMODULES", "CUDA_HOME", "CUDA_PATH"),
)
"""Where programs and libraries are; a container has its own."""
SETTINGS = (
    *("HF_*", "HUGGINGFACE_*", "TRANSFORMERS_*", "TOKENIZERS_*", "ACCELERATE_*", "DIFFUSERS_*"),
    *("TORCH_*", "TORCHINDUCTOR_*", "PYTORCH_*", "TRITON_*", "DEEPSPEED_*", "DS_*"),
    *("JAX_*", "XLA_*", "TF_*", "KERAS_*"),
    *("CUDA_*", "CUDNN_*", "CUBLAS_*", "NCCL_*", "GLOO_*", "UCX_*", "FI_*", "OMPI_MCA_*"),
    *("OMP_*", "MKL_*", "OPENBLAS_*", "NUMEXPR_*", "KMP_*"),
    *("WANDB_*", "MLFLOW_*", "COMET_*", "NEPTUNE_*", "CLEARML_*", "TENSORBOARD_*"),
    *("LANG", "LANGUAGE", "LC_*", "TZ"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "FTP_PROXY"),
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "ftp_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "TMPDIR"),
)
"""Settings of frameworks, trackers, languages, proxies and caches."""
NEVER = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MPS_*", "NVIDIA_VISIBLE_DEVICES"),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK"),
    *("MASTER_ADDR", "MASTER_PORT", "PET_*", "TORCHELASTIC_*", "SLURM_*", "TRAINMASTER_*"),
    *("PWD", "OLDPWD", "SHLVL", "_"),
)
"""What the job has of its own, or what belongs to one shell: not even with --export-all."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def exported(
    ours: Mapping[str, str], *, everything: bool = False, in_container: bool = False
) -> dict[str, str]:
    """The variables that go along; `everything`: all but those that never do."""
    patterns = ("*",) if everything else SETTINGS if in_container else PROGRAMS + SETTINGS
    without = (*NEVER, *PROGRAMS) if in_container else NEVER
    return {
        name: value
        for name, value in ours.items()
        if value and NAME.fullmatch(name) and _is_any(name, patterns) and not _is_any(name, without)
    }


def _is_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(
        name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns
    )
