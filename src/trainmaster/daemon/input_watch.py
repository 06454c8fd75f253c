"""Inputs that fail job after job: set aside by facts, and jobs that name one are held until it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING

import structlog

from trainmaster.core.lifecycle import WAITING, Phase
from trainmaster.daemon.live_job import Hold, LiveJob
from trainmaster.daemon.report_events import LoggedEvent
from trainmaster.failures.input_blocks import (
    absolute,
    block_of,
    failed_inputs,
    has_changed,
    is_made,
    is_to_be_blocked,
    made_paths,
    named_paths,
    program_key,
)
from trainmaster.model import events as e
from trainmaster.model.inputs import InputBlock, InputFailure
from trainmaster.model.launch_spec import LaunchSpec
from trainmaster.model.reasons import Reason, Why
from trainmaster.text.formatting import plural

if TYPE_CHECKING:
    from trainmaster.daemon.driver import Driver

log = structlog.get_logger("trainmaster.daemon")

LOOK_S = 5.0
"""How often it is looked whether a path that is set aside has changed."""
FACTS = (e.InputFailed, e.InputBlocked, e.InputReturned)
StampOf = Callable[[InputBlock], Awaitable[str | None]]
"""What a path is like now, as those see it who failed on it; None: that takes too long to find out."""


@dataclass(frozen=True, slots=True)
class BlockedInput:
    """A path that is set aside, and the jobs that wait for it."""

    block: InputBlock
    waiting: tuple[str, ...]


class InputWatch:
    """Counts failures by input and holds the jobs that name one that is set aside."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._returned: dict[str, tuple[InputBlock, str]] = {}
        """What came back since the manager started, and why: for the stories of those that waited."""

    @property
    def blocks(self) -> dict[str, InputBlock]:
        return self._driver.controller.state.input_blocks

    # -- facts ---------------------------------------------------------------------------------------

    def news(self, live: LiveJob, found: Iterable[LoggedEvent]) -> Iterator[LoggedEvent]:
        """What the end of a run says about its inputs, stored in the same step as that end."""
        for logged in found:
            if isinstance(logged.event, e.RunSucceeded):
                yield from self._read_again(live)
            failure = logged.event.failure if isinstance(logged.event, e.RunFailed) else None
            if failure is None or not failure.path:
                continue
            job, workdir, command = live.job, live.recipe.workdir, live.recipe.command
            if is_made(failure.path, command, workdir, live.stored.data):
                continue
            program = program_key(job.app, str(live.spec.get("workdir") or ""), command)
            for path in failed_inputs(failure.path, workdir, live.stored.data):
                seen = InputFailure(
                    *(path, job.id, job.user, program), failure.reason, self._driver.clock.now()
                )
                yield LoggedEvent(e.InputFailed(seen))

    def _read_again(self, live: LiveJob) -> Iterator[LoggedEvent]:
        """A job that names them has succeeded: what failed on them before does not count any more."""
        known = self._driver.controller.state.input_failures
        if known:
            recipe, data = live.recipe, live.stored.data
            made = made_paths(recipe.command, recipe.workdir)
            named = named_paths(recipe.command, recipe.workdir, data) | made
            for path in sorted(named & known.keys()):
                did = "written" if path in made else "read"
                self.note_return(path, f"job {live.id} has {did} it")
                yield LoggedEvent(e.InputReturned(path))

    def at_arrival(self, events: Iterable[LoggedEvent]) -> Iterator[LoggedEvent]:
        """These, with new jobs held for what was set aside since they were read: they would start at once.

        Not those of another store that were started there: they may be running.
        """
        for logged in events:
            event = logged.event
            if self.blocks and isinstance(event, e.JobSubmitted) and not event.attempts:
                live = self._driver.jobs[event.job.id]
                if Hold.INPUT not in live.holds and self._block_of(live) is not None:
                    live.holds.add(Hold.INPUT)
                    held_for = {"held_for": sorted(hold.value for hold in live.holds)}
                    detail = {**logged.detail, **held_for}
                    logged = replace(logged, event=replace(event, held=True), detail=detail)
            yield logged

    def consequences(self) -> list[LoggedEvent]:
        """Paths to set aside, jobs to hold and jobs to release, as the state is now."""
        return [*self._new_blocks(), *self.follow_up(list(self._driver.jobs.values()))]

    def follow_up(self, lives: Iterable[LiveJob]) -> Iterator[LoggedEvent]:
        """Hold or release these jobs, as the state is now.

        After each step, for those that it touched: a path may have been set aside or have come back while
        a job was being submitted or was running.
        """
        for live in lives:
            if Hold.INPUT in live.holds:
                yield from self._released(live)
            elif self.blocks:
                yield from self._held(live)

    def _new_blocks(self) -> Iterator[LoggedEvent]:
        state, most = self._driver.controller.state, self._driver.site_limits.input_failures
        for path, failures in state.input_failures.items():
            if path not in state.input_blocks and is_to_be_blocked(failures, most):
                jobs = [each.job for each in failures]
                log.warning("an input is set aside", path=path, jobs=jobs)
                block = InputBlock(path, self._driver.clock.now(), failures)
                yield LoggedEvent(e.InputBlocked(block))

    def _held(self, live: LiveJob) -> Iterator[LoggedEvent]:
        record = live.record
        if record is None or record.frozen is not None:
            return
        is_waiting = record.phase in WAITING or record.phase is Phase.HELD
        block = self._block_of(live) if is_waiting else None
        if block is not None:
            live.holds.add(Hold.INPUT)
            yield LoggedEvent(e.JobHeld(live.id), {"input": block.path})

    def _released(self, live: LiveJob) -> Iterator[LoggedEvent]:
        if live.record is not None and self._block_of(live) is None:
            for logged in self._driver.dependencies.remove_hold(live, Hold.INPUT):
                yield replace(logged, detail={**logged.detail, **self._return_of(live)})

    def note_return(self, path: str, because: str) -> None:
        """An input is about to be used again."""
        if path in self.blocks:
            self._returned[path] = self.blocks[path], because

    def _return_of(self, live: LiveJob) -> dict[str, str]:
        """Which input of a job is used again, and why."""
        recipe, returned = live.recipe, self._returned
        named = named_paths(recipe.command, recipe.workdir, live.stored.data)
        block = block_of(named, [block for block, _ in returned.values()])
        return {} if block is None else {"input": block.path, "because": returned[block.path][1]}

    # -- questions -----------------------------------------------------------------------------------

    def is_blocked(self, recipe: LaunchSpec, data: tuple[str, ...]) -> bool:
        """Whether such a job would have to wait for an input."""
        blocks = self.blocks
        if not blocks:
            return False
        named = named_paths(recipe.command, recipe.workdir, data)
        return block_of(named, blocks.values()) is not None

    def _block_of(self, live: LiveJob) -> InputBlock | None:
        recipe = live.recipe
        named = named_paths(recipe.command, recipe.workdir, live.stored.data)
        return block_of(named, self.blocks.values())

    def reason(self, live: LiveJob) -> Reason | None:
        """Why it waits for an input; None where it does not."""
        block = self._block_of(live) if Hold.INPUT in live.holds else None
        if block is None:
            return None
        jobs = tuple(each.job for each in block.failures)
        need = live.job.demand.nominal.total_share
        return Reason(
            Why.INPUT_BLOCKED, need, failed=jobs, since_ms=block.since_ms, detail=block.path
        )

    def listed(self) -> list[BlockedInput]:
        """The paths that are set aside, the oldest first, with the jobs that wait for each."""
        if not self.blocks:
            return []
        waiting: dict[str, list[str]] = {}
        for live in self._driver.jobs.values():
            block = self._block_of(live) if Hold.INPUT in live.holds else None
            if block is not None:
                waiting.setdefault(block.path, []).append(live.id)
        found = sorted(self.blocks.values(), key=lambda each: (each.since_ms, each.path))
        return [BlockedInput(each, tuple(waiting.get(each.path, ()))) for each in found]

    def notes(self) -> Iterator[str]:
        """A sentence for each path that is set aside."""
        for each in self.listed():
            count = len(each.waiting)
            jobs = f"{plural(count, 'job')} {'waits' if count == 1 else 'wait'}"
            path = each.block.path
            yield (
                f"Input {path} is set aside because jobs failed on it, and {jobs} for it:"
                f" `trainmaster inputs` says more, `trainmaster inputs unblock {quote(path)}` uses it again."
            )

    def path_of(self, path: str) -> str | None:
        """The path that is set aside under this name; None: there is none."""
        return next((each for each in (path, absolute(path, "/")) if each in self.blocks), None)

    # -- coming back ---------------------------------------------------------------------------------

    async def watch(self, stamp_of: StampOf) -> None:
        """Bring back, one look after another, what has changed since jobs failed on it."""
        self._driver.inbox.follow_up(self.consequences())
        while True:
            await asyncio.sleep(LOOK_S)
            for block in list(self.blocks.values()):
                stamp = await stamp_of(block)
                if stamp is not None:
                    self._driver.inbox.follow_up(self._looked_at(block.path, stamp))

    def _looked_at(self, path: str, stamp: str) -> Iterator[LoggedEvent]:
        block = self.blocks.get(path)
        if block is None:
            return
        if has_changed(block, stamp):
            log.info("an input has changed and is used again", path=path)
            self.note_return(path, "it has changed")
            yield LoggedEvent(e.InputReturned(path))
        elif not block.stamp:
            yield LoggedEvent(e.InputBlocked(replace(block, stamp=stamp)))
