"""Reads the cluster again when something has changed there, and from time to time, at a bounded cost.

After an answer that took the manager and the network some time, it is left alone for many times as long: ten
people who watch a large cluster do not slow it. The threads end with the program.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from trainmaster.cli.top_screen.cluster_view import Choice, ClusterView, read_cluster
from trainmaster.client.manager_api import ManagerApi, RequestRefused, Unreachable
from trainmaster.errors import CommandError

SHORTEST_S = 0.5
"""Between two looks, where much happens."""
LONGEST_S = 5.0
"""Between two looks, where nothing happens: progress and utilisation are no changes."""
COST = 20
"""The pause after a look, in lengths of the look: the manager spends at most a twentieth on it."""
EAGER_S = 5.0
"""After its user has asked for something, looks follow each other as quickly as they may."""
AGAIN_S = 3.0
"""Before changes are followed again, where that failed."""

Show = Callable[[ClusterView, Choice], None]
Complain = Callable[[str], None]


class ClusterWatch:
    """Calls `show` from a thread of its own with each new view, and `complain` where there is none."""

    def __init__(self, client: ManagerApi, show: Show, complain: Complain) -> None:
        self._client, self._show, self._complain = client, show, complain
        self._choice = Choice()
        self._news = threading.Event()
        self._wish = threading.Event()
        """Its user waits for a look: no pause is due."""
        self._is_stopped = threading.Event()
        self._eager_until = 0.0

    def start(self) -> None:
        for work in (self._look, self._follow):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        """Nothing is shown from now on."""
        self._is_stopped.set()
        self.look_now()

    def choose(self, choice: Choice) -> None:
        """List other jobs, at once."""
        self._choice = choice
        self.look_now()

    def look_now(self) -> None:
        self._eager_until = time.monotonic() + EAGER_S
        self._wish.set()
        self._news.set()

    def _look(self) -> None:
        while not self._is_stopped.is_set():
            self._news.clear()
            self._wish.clear()
            choice, began = self._choice, time.monotonic()
            try:
                self._show(read_cluster(self._client, choice), choice)
            except CommandError as error:
                self._client.look_again()
                self._complain(str(error))
            ended = time.monotonic()
            is_eager = ended < self._eager_until
            self._wish.wait(SHORTEST_S if is_eager else max(SHORTEST_S, COST * (ended - began)))
            self._news.wait(LONGEST_S)

    def _follow(self) -> None:
        """Wake the other thread at each change."""
        last = ""
        while not self._is_stopped.is_set():
            with suppress(Unreachable, RequestRefused):
                for event in self._client.events("/changes", after=last):
                    last = event.id
                    self._news.set()
            self._is_stopped.wait(AGAIN_S)
