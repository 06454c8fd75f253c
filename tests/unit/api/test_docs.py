"""The pages about job files and the API say what is so."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from tests.api_service import MemoryService
from trainmaster.api.app import create_app
from trainmaster.api.metrics import page
from trainmaster.config.job_file import JobFile, jobs_in_yaml
from trainmaster.daemon.job_rows import JobRow
from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.service_api import JobChanges
from trainmaster.model.reasons import Why

DOCS = Path(__file__).parents[3] / "docs"
JOB_FILE = (DOCS / "job-file.md").read_text()
API = (DOCS / "api.md").read_text()


def test_every_field_is_explained() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", JOB_FILE, re.M))
    assert listed == set(JobFile.known_keys())


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(.*?)```", JOB_FILE, re.S))
def test_every_example_is_a_job_file(text: str) -> None:
    assert jobs_in_yaml(text)


def test_every_page_of_the_api_is_listed(tmp_path: Path) -> None:
    document = create_app(MemoryService(tmp_path)).openapi()
    for path, known in document["paths"].items():
        for method in known:
            short = path.removeprefix("/api/v1")
            assert f"{method.upper()} {short}" in API or short in ("/healthz", "/metrics"), path


async def _names(service: MemoryService) -> set[str]:
    text = (await page(service, Metrics())).decode()
    return set(re.findall(r"^# TYPE (trainmaster_\w+) ", text, re.M))


def test_every_metric_is_listed(tmp_path: Path) -> None:
    import asyncio

    listed = set(re.findall(r"`(trainmaster_\w+)`", API))
    named = {
        name
        for name in asyncio.run(_names(MemoryService(tmp_path)))
        if not name.endswith("_created")
    }
    assert listed == named


def test_every_label_of_a_metric_is_listed(tmp_path: Path) -> None:
    """Of those that the page for Prometheus has: counters without values have no labels there."""
    import asyncio

    service = MemoryService(tmp_path)
    text = asyncio.run(page(service, Metrics())).decode()
    found = {
        name: ", ".join(re.findall(r'(\w+)="', labels))
        for name, labels in re.findall(r"^(trainmaster_\w+)\{([^}]*)\}", text, re.M)
    }
    assert "trainmaster_node_devices" in found
    for names, labels in re.findall(r"^\| (`trainmaster_.*?`) \| (.*?) ?\|", API, re.M):
        for name in re.findall(r"`(\w+)`", names):
            assert found.get(name, labels) == labels, name


def test_every_reason_is_listed() -> None:
    assert [why.value for why in Why if why.value not in API] == []


def test_every_field_that_may_be_changed_is_listed() -> None:
    line = next(line for line in API.splitlines() if "`PATCH /jobs/{job}`" in line)
    assert re.findall(r"`(\w+)`", line) == [*JobChanges.model_fields]


def test_every_part_of_a_row_is_listed() -> None:
    assert ", ".join(each.name for each in fields(JobRow)) in " ".join(API.split())
