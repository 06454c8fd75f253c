"""A gateway to a cluster, in a thread with a loop of its own: tests call it, and look at what it told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.live.daemons import until
from trainmaster.engines.ray.gateway_client import Gateway
from trainmaster.engines.ray.node_link import NodeFound, NodeNews, TakenByOthers, Unreachable
from trainmaster.model.job import Run

ECHO = "tests.ray.echo:Echo"
T = TypeVar("T")


class Linked:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.news: list[NodeNews] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @classmethod
    @contextmanager
    def to(
        cls, address: str, store: str = "s1", fence_s: float = 10.0, launcher: str = ECHO
    ) -> Iterator[Linked]:
        linked = cls(Gateway(address, store, fence_s, launcher=launcher))
        try:
            linked.do(linked.gateway.open(linked.news.append))
            yield linked
        finally:
            linked.do(linked.gateway.close())
            linked._loop.call_soon_threadsafe(linked._loop.stop)
            linked._thread.join()
            linked._loop.close()

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(120)

    def call(self, node: str, method: str, *words: object) -> Any:
        return self.do(self.gateway.call(node, method, *words))

    def until_called(self, node: str, method: str, *words: object) -> Any:
        """Its answer, as soon as there is one."""
        answers: list[Any] = []

        def is_answered() -> bool:
            try:
                answers.append(self.call(node, method, *words))
            except Unreachable:
                return False
            return True

        until(is_answered, f"{node} to answer")
        return answers[0]

    def reserve(self, run: Run, gpus: Mapping[str, int], cpus: Mapping[str, int] = {}) -> None:
        self.do(self.gateway.reserve(run, {node: 1000 * each for node, each in gpus.items()}, cpus))

    def reserved(self) -> Mapping[Run, Mapping[str, int]]:
        return self.do(self.gateway.reserved())

    def said(self, kind: type, name: str) -> list[Any]:
        return [each for each in self.news if isinstance(each, kind) and name_of(each) == name]

    def until_said(self, kind: type, name: str, times: int = 1) -> Any:
        until(lambda: len(self.said(kind, name)) >= times, f"{kind.__name__} of {name}")
        return self.said(kind, name)[times - 1]

    def taken(self, name: str) -> int:
        return [each.gpus for each in self.said(TakenByOthers, name)][-1]


def name_of(news: NodeNews) -> str:
    return news.node.name if isinstance(news, NodeFound) else news.name
