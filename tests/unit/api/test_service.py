"""The daemon that tests of the API use has the methods of the real one, with the same parameters."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import trainmaster.api
from tests.api_service import MemoryService
from trainmaster.api.routes.cluster import NODE_ACTIONS
from trainmaster.api.routes.jobs import ACTIONS
from trainmaster.daemon.cluster_control import ClusterControl
from trainmaster.daemon.job_control import JobControl
from trainmaster.daemon.job_outputs import JobOutputs
from trainmaster.daemon.queries import Queries
from trainmaster.daemon.submissions import Submissions

PARTS = {
    "cluster_control": ClusterControl,
    "job_control": JobControl,
    "job_outputs": JobOutputs,
    "queries": Queries,
    "submissions": Submissions,
}
BY_NAME = {"cluster_control": set(NODE_ACTIONS), "job_control": set(ACTIONS)}
"""Methods that routes look up by the name of an action."""
SOURCES = sorted(Path(trainmaster.api.__file__).parent.rglob("*.py"))


def _called(part: str) -> set[str]:
    """Names that the API looks up in that part of the service."""
    nodes = [node for source in SOURCES for node in ast.walk(ast.parse(source.read_text()))]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    found = {
        node.attr
        for node in attributes
        if (isinstance(node.value, ast.Attribute) and node.value.attr == part)
        or (isinstance(node.value, ast.Name) and node.value.id == part)
    }
    return found | BY_NAME.get(part, set())


CALLS = [(kind, name) for part, kind in PARTS.items() for name in sorted(_called(part))]


@pytest.mark.parametrize(("kind", "name"), CALLS, ids=[name for _, name in CALLS])
def test_the_fake_takes_what_the_daemon_takes(kind: type, name: str) -> None:
    ours, real = getattr(MemoryService, name), getattr(kind, name)
    if isinstance(real, property):
        assert isinstance(ours, property)
    else:
        assert inspect.signature(ours) == inspect.signature(real)


def test_all_of_them_were_looked_at() -> None:
    assert len(CALLS) > 15
