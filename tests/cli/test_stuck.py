"""What `simulate` says of jobs that wait although nothing more will ever happen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Tm

Write = Callable[[str, str], Path]

TRACE = """\
job_id,submit_s,gpus,duration_s,queue
long,0,2,9000,b
wide,100,4,100,a
wider,200,4,50,a
"""
SHRINKING = """\
nodes:
  - {name: n1, gpus: 2}
  - {name: n2, gpus: 2}
changes:
  - {at_s: 2000, leave: n1}
"""
QUEUES = """\
queues:
  - {name: a, maximum_gpus: 2}
  - {name: b}
"""
UNCLEAR = """\
from trainmaster.policies.fifo import Fifo


class Unclear(Fifo):
    name = "unclear"

    def explain(self, view, memo, record, now):
        raise RuntimeError("no idea")
"""


@pytest.fixture
def files(write: Write) -> None:
    write("trace.csv", TRACE)
    write("cluster.yaml", SHRINKING)
    write("queues.yaml", QUEUES)
    write("unclear.py", UNCLEAR)


SAID = {
    "the cluster shrank": (
        "--cluster cluster.yaml --policy fifo",
        "Warning: fifo never starts 2 jobs, such as wide: it needs 4 GPUs and 2 are free,"
        " 2 are on nodes that are away\n",
    ),
    "its queue has a maximum": (
        "--cluster 2x2 --queues queues.yaml --policy fair",
        "Warning: fair never starts 2 jobs, such as wide: it needs 4 GPUs and its queue a may hold"
        " 2 GPUs at most",
    ),
    "the policy cannot say": (
        "--cluster cluster.yaml --policy ./unclear.py",
        "such as wide: the policy cannot say why (RuntimeError: no idea)\n",
    ),
}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("case", SAID)
def test_it_says_why_the_first_of_them_waits(tm: Tm, case: str) -> None:
    options, warning = SAID[case]
    said = tm(f"simulate trace.csv --perf ideal {options}")
    assert said.code == 0
    assert warning in said.err
