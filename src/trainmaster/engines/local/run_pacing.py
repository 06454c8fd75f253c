"""How a run is held back for another: at the ends of its steps, or by stopping it if it tells none.

Only the standard library is imported here: supervisors load it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trainmaster.engines.local.control_socket import Connection, ControlSocket
from trainmaster.engines.local.duty_cycle import DutyCycle
from trainmaster.engines.local.freezer_choice import gpu_names
from trainmaster.engines.local.pace_keeper import PaceKeeper
from trainmaster.engines.local.process_freezer import Members
from trainmaster.engines.local.runfile import RunFile
from trainmaster_sdk.wire import FULL_PACE, Message

SILENT_S = 60.0
"""A program that has said nothing of its steps for so long will not."""
MPS = "mps"


class RunPacing:
    """Of one generation of a run: which process reports its steps, its pace, and what follows from both."""

    def __init__(
        self,
        folder: str,
        run: RunFile,
        members: Members,
        control: ControlSocket,
        tell: Callable[[str, Message], None],
    ) -> None:
        self._control = control
        self._is_mps_client = run.sharing == MPS
        self._keeper = PaceKeeper(folder, run, gpu_names, self._ask, tell)
        self._duty = DutyCycle(members)
        self._started = time.monotonic()
        self._has_session = False
        """Whether the program reports its own steps."""
        self._counter: Connection | None = None
        """The process whose counted steps are the run's."""

    @property
    def due_at(self) -> float | None:
        """When `tick` wants to be called; None: it runs at its full pace, and shares nothing."""
        due = [at for at in (self._keeper.due_at, self._duty.due_at) if at is not None]
        return min(due, default=None)

    @property
    def pace(self) -> int:
        """Percent of its speed that it is held back to."""
        return self._keeper.pace

    def connected(self, connection: Connection) -> None:
        """A rank has said hello."""
        self._has_session = True
        self._say_pace(connection)

    def accepts(self, connection: Connection, report: Message) -> bool:
        """Counted steps are taken from one process, and only if the program does not report its own."""
        if "counted" not in report:
            return True
        if not connection.counts:
            connection.counts = True
            self._say_pace(connection)
        if self._counter is None or self._counter.is_gone:
            self._counter = connection
        return self._counter is connection and not self._has_session

    def step_done(self, step: int) -> None:
        self._keeper.step_done(step)

    def tick(self, now: float, *, is_suspended: bool, is_stopping: bool) -> None:
        """A program that says nothing of its steps is held back by stopping it."""
        says_steps = self._has_session or self._counter is not None
        is_silent = not says_steps and time.monotonic() - self._started > SILENT_S
        is_stoppable = is_silent and not self._is_mps_client
        self._keeper.is_heeded = says_steps or is_stoppable
        self._keeper.tick(now, is_suspended)
        if is_suspended or is_stopping:
            return
        self._duty.pace = self._keeper.pace if is_stoppable else FULL_PACE
        self._duty.tick(now)

    def let_go(self) -> None:
        """It is not stopped part of the time any more, until it has a pace again."""
        self._duty.end()

    def close(self) -> None:
        """It stops: it may use all of the time that is left."""
        self._keeper.close()
        self._duty.end()

    def _ask(self, pace: int) -> None:
        self._control.send_to_programs({"ask": "pace", "pace": pace})

    def _say_pace(self, connection: Connection) -> None:
        if self._keeper.pace < FULL_PACE:
            self._control.say(connection, [{"ask": "pace", "pace": self._keeper.pace}])
