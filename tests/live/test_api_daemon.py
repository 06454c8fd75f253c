"""The API over a real daemon: schemathesis tries every operation, and nothing breaks inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks

from tests.api_service import MemoryService
from tests.live.daemons import LiveDaemon, live
from trainmaster.api.app import create_app

pytestmark = pytest.mark.live

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
ENDLESS = "/api/v1/changes"
EXAMPLES = 6
BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
HARMLESS = {"command": "true", "snapshot": False, "held": True}
"""What a generated job is made to say: nobody wants to run a text that chance has written."""
GOOD_BODIES = {
    "/api/v1/policy": {"name": "las", "options": {"quantum_s": 30}},
}


def started(daemon: LiveDaemon) -> list[str]:
    """One job that ended, one that runs, one that waits, one that is held, an array."""
    done = daemon.submit(command="echo done", name="done")
    daemon.until_state(done, "succeeded")
    running = daemon.submit(command="sleep 600", name="running", gpus=2)
    daemon.until_state(running, "running")
    waiting = daemon.submit(command="sleep 600", name="waiting", gpus=2)
    held = daemon.submit(command="true", held=True)
    array = daemon.submit(command="true", held=True, array="0-3%2")
    return [done, running, waiting, held, array, f"{array}_2", "running", "nobody"]


def harmless(body: Any) -> Any:
    """The same jobs, but none that does anything."""
    if not isinstance(body, dict):
        return body
    if isinstance(body.get("jobs"), list):
        return {**body, "jobs": [harmless(each) for each in body["jobs"]]}
    kept = {key: value for key, value in body.items() if key not in ("workdir", "container")}
    return {**kept, **HARMLESS}


def test_a_real_daemon_answers_as_its_document_says(tmp_path: Path) -> None:
    with live(tmp_path / "state", "--slots", "3") as daemon:
        jobs = started(daemon)
        schema = schemathesis.openapi.from_url(
            f"{daemon.url}/api/v1/openapi.json", headers=daemon.bearer()
        )
        document = create_app(MemoryService(tmp_path)).openapi()
        for path, known in document["paths"].items():
            for method in known:
                if path != ENDLESS:
                    _try(schema, method.upper(), path, jobs, daemon.bearer())
        said = (daemon.folder / "manager.log").read_text()
        assert "Traceback" not in said, said[-3000:]


def _try(schema: Any, method: str, path: str, jobs: list[str], headers: dict[str, str]) -> None:
    operation = schema[path][method]

    @BOUNDED
    @given(data=st.data())
    def each(data: st.DataObject) -> None:
        mode = data.draw(st.sampled_from(list(GenerationMode)))
        parameters = {"job": data.draw(st.sampled_from(jobs))} if "{job}" in path else None
        strategy = operation.as_strategy(generation_mode=mode, path_parameters=parameters)
        case = data.draw(strategy)
        if case.query:
            case.query.pop("follow", None)  # a job that runs is followed for ever
        if path == "/api/v1/jobs" and method == "POST":
            if not isinstance(case.body, dict):
                return  # text that may be YAML: nobody knows what it would run
            case.body = harmless(case.body)
        elif path in GOOD_BODIES and method == "PUT" and data.draw(st.booleans()):
            case.body, case.media_type = GOOD_BODIES[path], "application/json"
        case.call_and_validate(checks=CHECKS, headers=headers)

    each()
