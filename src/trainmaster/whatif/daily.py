"""Once a day, in the background: would another policy have done better in the last day?"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import structlog

from trainmaster.daemon.daemon import Daemon
from trainmaster.daemon.request_errors import RequestError
from trainmaster.daemon.whatif_rows import DailyWhatIf
from trainmaster.durable_files import write_whole
from trainmaster.model.units import MINUTE, SECOND
from trainmaster.store.errors import StoreError
from trainmaster.text.formatting import duration, length, plural
from trainmaster.whatif.question import PolicyAsked, Question
from trainmaster.whatif.simulation_processes import RunState, SimulationProcesses
from trainmaster.whatif.study import PROGRAM

log = structlog.get_logger("trainmaster.whatif")

CANDIDATES = ("trainmaster", "fifo", "las", "tiresias-l")
"""The default; and one each that orders by arrival, by service, and by service in steps."""
NOBODY = "(the manager)"
FILE = "whatif-daily.json"
LEAST_JOBS = 20
"""Fewer say nothing."""
LEAST_GAIN = 0.05
"""Another policy is better where the mean JCT falls by more than this, and more than the model errs."""
LOOK_EVERY_MS = MINUTE
OFF = "Other policies are not tried in the background here (--limit daily_whatif=0)."


class DailyComparison:
    """That of one manager; what it found last outlives a restart."""

    def __init__(self, service: Daemon, simulations: SimulationProcesses) -> None:
        self._service = service
        self._simulations = simulations
        self._file = service.folder / FILE
        self._found: DailyWhatIf | None = None
        self._why_none = ""

    def row(self, policy: str) -> DailyWhatIf:
        """What is known now, under this policy in force."""
        every = self._service.limits.daily_whatif
        if not every:
            return _nothing("off", OFF, policy)
        if self._found is not None and self._found.policy == policy:
            return self._found
        said = self._why_none or f"The last {length(every)} has not been looked at yet."
        return _nothing("waiting", said, policy)

    async def run(self) -> None:
        """Until it is cancelled."""
        every = self._service.limits.daily_whatif
        if not every:
            return
        await self._service.is_active.wait()
        self._found = await asyncio.to_thread(self._read)
        while True:
            try:
                if await self._is_due(every):
                    await self._compare(every)
            except (RequestError, StoreError, OSError) as error:
                self._why_none = str(error)
            await asyncio.sleep(min(every, LOOK_EVERY_MS) / SECOND)

    async def _is_due(self, every: int) -> bool:
        """Whether there is so much history, and the last comparison is as old or of another policy."""
        queries = self._service.queries
        now, found = queries.now_ms(), self._found
        first = await self._service.history_since_ms()
        if first is None or now < first + every:
            self._why_none = f"Policies are compared once there is {length(every)} of history."
            return False
        is_of_now = found is not None and found.policy == queries.policy().name
        return not (
            is_of_now and found is not None and (found.computed_s or 0) * SECOND > now - every
        )

    async def _compare(self, every: int) -> None:
        policy = self._service.queries.policy().name
        others = tuple(PolicyAsked(name) for name in CANDIDATES if name != policy)
        run = await self._simulations.ask(
            NOBODY,
            PROGRAM,
            "the last day, for the overview",
            {
                "database": await self._service.address_of_state(),
                "now_ms": self._service.queries.now_ms(),
                "question": Question(others, since_ms=every).fields(),
            },
        )
        while not run.state.has_ended:
            await asyncio.sleep(1.0)
        if run.state is not RunState.DONE:
            self._why_none = run.says
            await asyncio.sleep(every / SECOND)
            return
        result = json.loads(await asyncio.to_thread(run.result.read_text))
        self._found = judged(result, self._service.queries.now_ms())
        await asyncio.to_thread(write_whole, self._file, json.dumps(vars(self._found)))

    def _read(self) -> DailyWhatIf | None:
        try:
            return DailyWhatIf(**json.loads(self._file.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            log.warning("the last daily comparison cannot be read", why=str(error))
            return None


def judged(result: dict[str, Any], now_ms: int) -> DailyWhatIf:
    """One sentence on a comparison: whether another policy would have done better."""
    own = next(side for side in result["sides"] if side["kind"] == "in-force")
    others = [side for side in result["sides"] if side["kind"] == "other" and side["mean_jct_s"]]
    jobs, error = result["jobs_counted"], result["model_error"]
    best = min(others, key=lambda side: side["mean_jct_s"], default=None)
    better, change = None, None
    if jobs < LEAST_JOBS or best is None or not own["mean_jct_s"]:
        said = f"Too few jobs ended ({plural(jobs, 'job')}) to compare policies on."
    else:
        change = best["mean_jct_s"] / own["mean_jct_s"] - 1
        if change < -max(LEAST_GAIN, abs(error or 0.0)):
            better = best["policy"]
            said = (
                f"Under {better} the last {plural(jobs, 'job')} would have taken"
                f" {duration(best['mean_jct_s'])} on average, {-change * 100:.0f} % less than under"
                f" {own['policy']} (simulated)."
            )
        else:
            tried = ", ".join(side["policy"] for side in others)
            said = (
                f"None of {tried} would have done clearly better than {own['policy']} (simulated)."
            )
    return DailyWhatIf(
        state="ready",
        sentence=said,
        policy=own["policy"],
        better=better,
        change=None if change is None else round(change, 4),
        computed_s=now_ms / SECOND,
        jobs=jobs,
        model_error=error,
    )


def _nothing(state: str, sentence: str, policy: str) -> DailyWhatIf:
    return DailyWhatIf(
        state=state,
        sentence=sentence,
        policy=policy,
        better=None,
        change=None,
        computed_s=None,
        jobs=0,
        model_error=None,
    )
