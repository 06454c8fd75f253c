"""The OpenAPI document is true: schemathesis tries what it says, and finds no answer that it does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks

from tests.api_service import MemoryService, by_us
from trainmaster.api.app import create_app
from trainmaster.api.submission import Defaults, submission_of
from trainmaster.config.job_file import jobs_in_json
from trainmaster.model.queue import Queue
from trainmaster.store.rows import TokenRow, UserRow

pytestmark = pytest.mark.live

DOCUMENT = "/api/v1/openapi.json"
KNOWN_JOBS = ("1", "4", "9", "12", "12_3", "resnet")
EXAMPLES = 10
"""For each operation."""
GOOD_BODIES = {
    "/api/v1/jobs/{job}/move": {"node": "n0"},
    "/api/v1/tokens": {"user": "ada", "expires": "1h"},
    "/api/v1/users/{name}": {"role": "operator"},
    "/api/v1/reservations": {"places": ["n0"], "for": "4h"},
    "/api/v1/policy": {"name": "las", "options": {"quantum_s": 30}},
}
"""What chance would not come upon."""
TOKEN = TokenRow("5f0c2e7b", "d", "ada", "viewer", "", 1, None, None, None)
ENDLESS = "/api/v1/changes"
PORTS = "/api/v1/jobs/{job}/ports/{port}"
"""Leads to a port that a process of the job listens on; here jobs have none (test_forward has them)."""
SIMULATED = ("/api/v1/lab", "/api/v1/whatif")
"""What they answer where something was simulated is in the tests of these two."""
OF_A_MANAGER = tuple(f"/api/v1/{name}" for name in ("overview", "grid", "timeline"))
"""They read the state of a real manager: test_api_daemon.py tries them there."""
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.unsupported_method,
]
BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def populated(folder: Path, *, ends_at_once: bool) -> MemoryService:
    """With the jobs that the document's examples name: 12, 12_3, resnet."""
    service = MemoryService(folder, ends_at_once=ends_at_once)

    def submit(**job: object) -> None:
        [(model, raw)] = jobs_in_json({"command": "true", "snapshot": True, **job})
        asyncio.run(service.submit([submission_of(model, Defaults("ada", folder), raw)]))

    for number in range(11):
        submit(name=f"job-{number}", gpus=2, held=number in (3, 8))
    submit(array="0-3", held=True)
    submit(name="resnet", queue="vision")
    service.stated["vision"] = Queue("vision")
    service.write("1", b"a line\n")
    service.hang("13", "rank 0, process 7, sleeping: python train.py\n")
    service.report("1", 3, float("inf"))
    service.blocked.append("/data/train.rec")
    service.kept.keep_account(TOKEN)
    service.kept.keep_account(UserRow("n0", "viewer", 1))
    return service


def operations() -> list[tuple[str, str]]:
    """What the document describes: method and path."""
    document = create_app(MemoryService(Path("."))).openapi()
    return [
        (method.upper(), path)
        for path, known in document["paths"].items()
        for method in known
        if path not in OF_A_MANAGER
    ]


@pytest.fixture
def running(tmp_path: Path) -> Any:
    """An API whose jobs run and wait."""
    service = populated(tmp_path, ends_at_once=False)
    return schemathesis.openapi.from_asgi(
        DOCUMENT, by_us(create_app(service, hosts=["testserver"]))
    )


@pytest.fixture
def ended(tmp_path: Path) -> Any:
    """An API whose jobs have ended, so that streams end too."""
    service = populated(tmp_path, ends_at_once=True)
    return schemathesis.openapi.from_asgi(
        DOCUMENT, by_us(create_app(service, hosts=["testserver"]))
    )


def tried(schema: Any, method: str, path: str, *, may_follow: bool) -> set[int]:
    """Call an operation in many ways, good and bad; the statuses that were seen."""
    seen: set[int] = set()
    operation = schema[path][method]
    known = {
        "job": KNOWN_JOBS,
        "name": ["vision"] if "queues" in path else ["n0"],
        "id": [TOKEN.id],
        "number": [3],
    }
    names = {name: st.sampled_from(of) for name, of in known.items() if f"{{{name}}}" in path}

    @BOUNDED
    @given(data=st.data())
    def each(data: st.DataObject) -> None:
        mode = data.draw(st.sampled_from(list(GenerationMode)))
        is_apt = data.draw(st.booleans())
        parameters = data.draw(st.fixed_dictionaries(names)) if is_apt and names else None
        case = data.draw(operation.as_strategy(generation_mode=mode, path_parameters=parameters))
        if is_apt and path in GOOD_BODIES and method != "GET":
            case.body, case.media_type = GOOD_BODIES[path], "application/json"
        if case.query and not may_follow:
            case.query.pop("follow", None)
        seen.add(case.call_and_validate(checks=CHECKS).status_code)

    each()
    return seen


@pytest.mark.parametrize(("method", "path"), [each for each in operations() if each[1] != ENDLESS])
def test_every_answer_is_documented_while_jobs_run(running: Any, method: str, path: str) -> None:
    seen = tried(running, method, path, may_follow=False)
    is_accepted = seen & {200, 201} or path == PORTS or path.startswith(SIMULATED)
    assert is_accepted, f"only {seen}: nothing was ever accepted"


@pytest.mark.parametrize("path", [ENDLESS, "/api/v1/jobs/{job}/logs", "/api/v1/jobs/{job}/explain"])
def test_every_answer_is_documented_when_jobs_have_ended(ended: Any, path: str) -> None:
    assert tried(ended, "GET", path, may_follow=True) & {200}


@pytest.mark.parametrize("deed", ["cancel", "suspend", "resume", "save"])
def test_what_cannot_be_done_is_documented(ended: Any, deed: str) -> None:
    assert 409 in tried(ended, "POST", f"/api/v1/jobs/{{job}}/{deed}", may_follow=True)


def test_the_document_describes_itself() -> None:
    """Every operation has a summary, and every error its example."""
    document = create_app(MemoryService(Path("."))).openapi()
    for path, known in document["paths"].items():
        for method, operation in known.items():
            assert operation["summary"], (method, path)
            for status, answer in operation["responses"].items():
                if status.startswith("4"):
                    assert answer["content"]["application/json"]["example"], (method, path, status)
    assert "JobFile" in document["components"]["schemas"]
