"""What a what-if answers: the same for the API, the page and the command line."""

from __future__ import annotations

from typing import Any

from trainmaster.daemon.job_rows import ResponseModel


class QueueWait(ResponseModel):
    """How long the jobs of a queue waited for their first start."""

    queue: str
    jobs: int
    mean_wait_s: float
    p95_wait_s: float


class WhatIfSide(ResponseModel):
    """One column of a comparison: what happened, or what would have under one policy."""

    name: str
    """For people, such as `fifo, 2 more nodes`."""
    kind: str
    """`real`; `in-force`: the policy in force, simulated; `other`: another policy, or another cluster."""
    policy: str
    options: dict[str, str]
    gpus: int
    jobs: int
    """That have ended, of those that are counted."""
    mean_jct_s: float | None
    """From submission to end, over those jobs."""
    p50_jct_s: float | None
    p95_jct_s: float | None
    p99_jct_s: float | None
    mean_wait_s: float | None
    """From submission to the first start."""
    utilisation: float | None
    """Part of the devices that jobs held, from 0 to 1, in the time that is looked at."""
    fairness: float | None
    """Jain's index over queues of GPU time received / entitled while active; 1 is fair."""
    preemptions: int | None
    migrations: int | None
    winners: int | None
    """Jobs whose JCT is shorter than in the column of the policy in force, by more than 1 % and 0.1 s."""
    losers: int | None
    queues: list[QueueWait]
    jct_curve: list[list[float]]
    """`[JCT in s, part of the jobs that are done by then]`, ascending."""
    used_curve: list[list[float]]
    """`[time, devices held from then on]`, Unix seconds."""


class JobSide(ResponseModel):
    """One job under one policy; times are Unix seconds."""

    start_s: float | None
    finish_s: float | None
    jct_s: float | None


class WhatIfJob(ResponseModel):
    job: str
    name: str
    user: str
    queue: str
    gpus: float
    submit_s: float
    sides: list[JobSide]
    """In the order of the columns."""
    changes_s: list[float | None]
    """JCT less that under the policy in force, simulated, for each column."""


class WhatIfResult(ResponseModel):
    question: str
    """`history` or `queue`."""
    headline: str
    """One sentence."""
    notes: list[str]
    """What is not as it was, and what is left out."""
    from_s: float
    until_s: float
    sides: list[WhatIfSide]
    jobs: list[WhatIfJob]
    """Those that win or lose most, 200 at most for each column."""
    jobs_counted: int
    model_error: float | None
    """Mean JCT under the policy in force as simulated, less the real one, as part of the real one."""


class WhatIfRow(ResponseModel):
    id: str
    state: str
    """`waiting` for others to end, `running`, `done`, `failed` or `cancelled`."""
    progress: float
    """From 0 to 1."""
    says: str
    """What it does now, or why it failed: a sentence."""
    title: str
    """What was asked, for people."""
    user: str
    asked_s: float
    ended_s: float | None
    result: dict[str, Any] | None
    """A `WhatIfResult`, once it is done."""


class WhatIfList(ResponseModel):
    whatifs: list[WhatIfRow]


class DailyWhatIf(ResponseModel):
    """Whether another policy would have done better in the last day."""

    state: str
    """`off`, `waiting`: for a day of history, or for its turn; `ready`."""
    sentence: str
    policy: str
    """The policy in force."""
    better: str | None
    """The policy that would have done better by more than the model's error; null: none."""
    change: float | None
    """Mean JCT under the best of the others, as part of that under the policy in force, less 1."""
    computed_s: float | None
    jobs: int
    model_error: float | None
