"""Variables that look like secrets go along as files that only their user can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.client.secret_references import by_reference
from trainmaster.config.secret_names import looks_secret


@pytest.mark.parametrize(
    "name",
    [
        "WANDB_API_KEY",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
        "COMET_API_KEY",
        "TOKEN",
        "github_pat",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "WANDB_MODE", "PATH", "MONKEY", "KEYBOARD", "NCCL_DEBUG"]
)
def test_names_of_others(name: str) -> None:
    assert not looks_secret(name)


def test_a_value_becomes_a_private_file_and_a_new_value_another_one(tmp_path: Path) -> None:
    place = tmp_path / "secrets"
    spec = {"command": "x", "env": {"HF_TOKEN": "one", "A": "b"}, "secrets": {"K": "/k"}}
    made = by_reference(spec, place)
    file = Path(made["secrets"]["HF_TOKEN"])
    assert made["env"] == {"A": "b"}
    assert made["secrets"] == {"K": "/k", "HF_TOKEN": str(file)}
    assert file.read_text() == "one"
    assert file.stat().st_mode & 0o777 == 0o600
    assert place.stat().st_mode & 0o777 == 0o700
    assert by_reference(spec, place) == made
    other = by_reference({"env": {"HF_TOKEN": "two"}}, place)
    assert Path(other["secrets"]["HF_TOKEN"]).read_text() == "two"
    assert file.read_text() == "one"
