"""What the simulator does about failures: the manager's own rules, on failures that the trace knows.

No rule makes an attempt succeed that failed in the trace: rules save what they do not run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from trainmaster.failures.failure_report import failure_report
from trainmaster.failures.input_blocks import is_to_be_blocked
from trainmaster.failures.prerun_rules import counts_against_program
from trainmaster.failures.reason_table import ReasonTable
from trainmaster.failures.retry_rules import FailedAttempt, Resources, RetryLimits, decide
from trainmaster.model.failure import UNKNOWN_REASON, Failure
from trainmaster.model.failure_report import FailedRun, JobEnd, RuleEffects, SimulatedFailures
from trainmaster.model.inputs import InputFailure
from trainmaster.model.topology import Topology
from trainmaster.model.trace import Outcome
from trainmaster.model.units import HOUR, NOMINAL, SECOND, WHOLE
from trainmaster.sim.accounting import Account

PRERUN_MS = 60 * SECOND
"""How long a pre-run lasts that does not fail before."""
MOST_SOURCES = 20
"""Programs, users, nodes, devices and inputs that a result lists, each: a trace has very many."""
JOBS_UNTIL_BLOCKED = 3
"""An input is blocked when so many jobs, of several users or programs, have failed on it."""


@dataclass(frozen=True, slots=True)
class FailureRules:
    """Which of the manager's rules about failures hold in a simulation."""

    reasons: ReasonTable = field(default_factory=ReasonTable)
    retries: bool = False
    """Retry only where the rules say that it may help."""
    prerun_ms: int | None = None
    """Length of the pre-run of jobs of several devices; None: there are none."""
    blocks_inputs: bool = False
    """Start no job on an input that has failed across jobs."""

    @property
    def names(self) -> tuple[str, ...]:
        seconds = (
            "" if self.prerun_ms in (None, PRERUN_MS) else f":{(self.prerun_ms or 0) // SECOND}"
        )
        chosen = ("retry", self.retries), (f"prerun{seconds}", self.prerun_ms is not None)
        return tuple(name for name, holds in (*chosen, ("inputs", self.blocks_inputs)) if holds)


@dataclass(slots=True)
class FailureJudge:
    """Applies the rules to one simulation, and records its failed runs."""

    rules: FailureRules
    topology: Topology
    failed_runs: list[FailedRun] = field(default_factory=list)
    given_up: int = 0
    """Jobs that were not retried although the trace has another attempt, ..."""
    given_up_in_vain: int = 0
    """... of those, jobs that do not fail in the end."""
    set_aside: int = 0
    """Jobs that were not started because their input was blocked."""
    prerun_gpu_ms: int = 0
    """Of pre-runs that passed: thousandths of a GPU x ms."""
    blocked: set[str] = field(default_factory=set)
    new_blocks: list[str] = field(default_factory=list)
    """Inputs blocked since this was last looked at."""
    _earlier: dict[str, list[FailedAttempt]] = field(default_factory=dict)
    _failures_of_input: defaultdict[str, list[InputFailure]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def failure_of(self, account: Account) -> Failure | None:
        """Why the present attempt will fail; None: it will not."""
        if not account.has_failures_left and account.outcome is not Outcome.FAILED:
            return None
        known, index = account.traced.failure_reasons, account.attempt_index
        row = self.rules.reasons.of(known[index] if index < len(known) else UNKNOWN_REASON)
        path = account.traced.bad_input
        return Failure(row.key, row.blame, path=path)

    def prerun(self, account: Account) -> tuple[int, Failure | None]:
        """How long a pre-run of it lasts, and why it fails, if it does."""
        most, failure = self.rules.prerun_ms or 0, self.failure_of(account)
        ends_ms = account.target // NOMINAL
        if failure is not None and ends_ms <= most and counts_against_program(failure):
            return ends_ms, failure
        return min(most, ends_ms), None

    def is_retried(
        self, account: Account, failure: Failure, run_ms: int, gpus: int, now: int
    ) -> tuple[bool, int]:
        """Record a failed run; whether its job is tried again, and after how long."""
        job = account.traced.job
        self.failed_runs.append(
            FailedRun(
                job=job.id,
                reason=failure.reason,
                run_ms=run_ms,
                gpus=gpus,
                blame=failure.blame,
                user=job.user,
                program=job.app or job.model,
                path=failure.path,
            )
        )
        if self.rules.blocks_inputs and failure.path:
            self._count_input(self.failed_runs[-1], now)
        if not account.has_failures_left:
            return False, 0
        is_retried, delay_ms = self._by_rules(account, failure, run_ms)
        if not is_retried:
            self.given_up += 1
            self.given_up_in_vain += account.outcome is not Outcome.FAILED
        return is_retried, delay_ms

    def _by_rules(self, account: Account, failure: Failure, run_ms: int) -> tuple[bool, int]:
        if failure.path in self.blocked:
            return False, 0
        if not self.rules.retries:
            return True, 0
        job, row = account.traced.job, self.rules.reasons.of(failure.reason)
        earlier = self._earlier.setdefault(job.id, [])
        failed = FailedAttempt(failure, run_ms)
        limits = RetryLimits(job.retries, len(earlier))
        decision = decide(failed, earlier, row, self._had(account, len(earlier)), limits)
        earlier.append(failed)
        return decision.is_retried, decision.delay_ms

    def _had(self, account: Account, failures: int) -> Resources:
        """Whole GPUs, and its part of a node's host memory, twice as much after each failure."""
        node = max(self.topology.nodes, key=lambda node: node.memory)
        gpus = min(account.traced.job.demand.nominal.count, node.gpus)
        memory = node.memory * gpus // max(1, node.gpus) << failures
        return Resources(memory=min(memory, node.memory), most_memory=node.memory)

    def _count_input(self, run: FailedRun, now: int) -> None:
        failures = self._failures_of_input[run.path]
        failures.append(InputFailure(run.path, run.job, run.user, run.program, run.reason, now))
        if run.path not in self.blocked and is_to_be_blocked(failures, JOBS_UNTIL_BLOCKED):
            self.blocked.add(run.path)
            self.new_blocks.append(run.path)

    def is_blocked(self, account: Account) -> bool:
        """Whether it would be started on an input that is blocked."""
        return bool(self.blocked) and account.traced.bad_input in self.blocked

    def found(self, ends: Iterable[JobEnd]) -> SimulatedFailures:
        """The tables, with the effects of the rules."""
        effects = RuleEffects(
            rules=self.rules.names,
            jobs_given_up=self.given_up,
            jobs_given_up_in_vain=self.given_up_in_vain,
            jobs_set_aside=self.set_aside,
            inputs_blocked=len(self.blocked),
            prerun_gpu_hours=self.prerun_gpu_ms / (WHOLE * HOUR),
        )
        return SimulatedFailures(effects, failure_report(self.failed_runs, ends, MOST_SOURCES))
