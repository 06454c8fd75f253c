"""Writes steps to the store, retrying as long as needed; no other step is decided meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.service_api import Unavailable
from trainmaster.store.errors import LeadershipLost, StoreError
from trainmaster.store.rows import Batch
from trainmaster.store.store import Store

log = structlog.get_logger("trainmaster.daemon")

RETRY_S = 1.0


class StepWriter:
    """Writes steps in order, and says why none can be written now."""

    def __init__(self, store: Store, metrics: Metrics, seq: int) -> None:
        self._store = store
        self._metrics = metrics
        self.seq = seq
        """The last step that was written."""
        self.trouble = ""
        """Why nothing can be written now."""
        self.is_torn = False
        """Whether the controller has made a step that is not written yet."""
        self.gives_up = False
        """Whether to stop retrying, because the manager is stopping."""

    def refuse_in_trouble(self) -> None:
        """Refuse a request that could not be stored, before anything is changed."""
        if self.trouble:
            raise Unavailable(self.trouble)

    async def write(self, batches: Sequence[Batch]) -> None:
        """Write all of them or none, trying again until the store accepts them."""
        while True:
            try:
                await asyncio.to_thread(self._store.append, batches)
            except LeadershipLost:
                raise
            except StoreError as error:
                self._note(str(error))
                if self.gives_up:
                    raise
                await asyncio.sleep(RETRY_S)
            else:
                if self.trouble:
                    log.info("the store can be written again")
                self.trouble = ""
                self.seq, self.is_torn = batches[-1].step.seq, False
                return

    def _note(self, trouble: str) -> None:
        if self.trouble != trouble:
            log.error("the store cannot be written", why=trouble)
        self.trouble = trouble
        self._metrics.store_errors.inc()
