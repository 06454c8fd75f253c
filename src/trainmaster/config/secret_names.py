"""Which environment variables hold secrets, by their names."""

from __future__ import annotations

import re

SECRET = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_KEY|SECRET_KEY|PRIVATE_KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|PAT)$"
)
HIDDEN = "***"


def looks_secret(name: str) -> bool:
    """`WANDB_API_KEY`, `HF_TOKEN`, `AWS_SECRET_ACCESS_KEY`, `PGPASSWORD` and their like."""
    return bool(SECRET.search(name.upper())) or name.upper().endswith("PASSWORD")
