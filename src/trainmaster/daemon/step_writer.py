"""Has steps kept by the store, however long that takes; nothing else is decided meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from trainmaster.daemon.metrics import Metrics
from trainmaster.daemon.service_api import Unavailable
from trainmaster.store.protocol import Deposed, Store, StoreError
from trainmaster.store.rows import Batch

log = structlog.get_logger("trainmaster.daemon")

RETRY_S = 1.0


class StepWriter:
    """Knows which step was kept last, and why none can be kept now."""

    def __init__(self, store: Store, metrics: Metrics, seq: int) -> None:
        self._store = store
        self._meters = metrics
        self.seq = seq
        """The last step that was kept."""
        self.trouble = ""
        """Why nothing can be kept now."""
        self.is_torn = False
        """Whether the controller has made a step that is not kept yet."""
        self.gives_up = False
        """Whether a store that cannot be written is tried no more: the daemon is ending."""

    def refuse_in_trouble(self) -> None:
        """Before anything is changed for a request that could not be kept."""
        if self.trouble:
            raise Unavailable(self.trouble)

    async def keep(self, batches: Sequence[Batch]) -> None:
        """All of them or none, until the store takes them."""
        while True:
            try:
                await asyncio.to_thread(self._store.append, batches)
            except Deposed:
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
        self._meters.store_failed()
