"""Resizing for libraries that own the loop and the process group (Lightning, Hugging Face, Accelerate).

    with trainmaster_sdk.run() as tm:
        for _ in rounds(tm):
            callback = TrainmasterCallback(tm)
            trainer = Trainer(devices=tm.world_size, callbacks=[callback], ...)
            trainer.fit(model, data, ckpt_path=callback.resume_path)

When the job is resized, the library saves a checkpoint and returns; then another round begins with the ranks
that there are now. Those that stay keep their process, with all that it has imported, loaded and compiled;
the trainer is made anew, and the state goes through the checkpoint.
"""

from __future__ import annotations

import gc
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from trainmaster_sdk.elastic import LOOK_S, meet, place_in_environment, tell_environment
from trainmaster_sdk.resize_requests import CalledOff, ResizeRequest, ResizeTimes
from trainmaster_sdk.session import Session
from trainmaster_sdk.torch import leave_group, leave_store

PORT, TOLD = "port", "told"


def rounds(tm: Session) -> Iterator[None]:
    """One round for each size that the job has while it trains."""
    regrouping = _Regrouping(tm)
    tm.can_resize(regrouping)
    if tm.joins:
        tm.ready()
        try:
            times = regrouping.resize(place_in_environment(tm), tm.is_called_off)
        except CalledOff:
            tm.end_unjoined()
        tm.joined(times)
        tm.joins = False  # its state comes from the checkpoint, as that of the others does
    while True:
        yield
        if not tm.is_resize_agreed:
            return
        gc.collect()  # what the last trainer had of the process group
        if not tm.resize_if_due():
            raise SystemExit(0)  # its checkpoint has been written


class _Regrouping:
    """The ranks meet and tell each other where the library forms its process group."""

    def __init__(self, tm: Session) -> None:
        self._tm = tm

    def leave(self) -> None:
        leave_group()

    def end_failed_step(self) -> None:
        """Nothing is kept of a step that failed: the library is in the middle of it."""

    def resize(self, request: ResizeRequest, is_called_off: Callable[[], bool]) -> ResizeTimes:
        began = time.monotonic()
        leave_group()
        leave_store()
        _forget_accelerate()
        place = _with_own_port(request, is_called_off)
        self._tm.take_place(place.rank or 0, place.world, place.local_rank)
        tell_environment(place)
        return ResizeTimes(round((time.monotonic() - began) * 1000), 0)


def _with_own_port(place: ResizeRequest, is_called_off: Callable[[], bool]) -> ResizeRequest:
    """The library listens at a port of its own; the first rank chooses it."""
    store = meet(place, is_called_off)
    if place.rank == 0:
        store.set(PORT, str(_free_port()))
    port = int(bytes(store.get(PORT)).decode())
    store.add(TOLD, 1)
    while place.rank == 0 and store.add(TOLD, 0) < place.world:
        time.sleep(LOOK_S)
    return replace(place, port=port)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def _forget_accelerate() -> None:
    """Accelerate remembers the ranks of its first use, also under Hugging Face's Trainer."""
    state = sys.modules.get("accelerate.state")
    if state is not None:
        state.AcceleratorState._reset_state(reset_partial_state=True)
        state.GradientState._reset_state()
