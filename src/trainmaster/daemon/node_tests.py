"""After the failure of a gang on several nodes: all-reduces between two of them at a time find a bad one.

What the ranks of a gang write when a collective operation fails says that some rank or some wire did not do
its part, not which. A node that fails with a good one is set aside, with all its devices, until a user brings
it back. GPUs are tried by NCCL where each of the nodes has an idle one, else the nodes by gloo.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from trainmaster.config.command_line import PYTHON, base_name, simple_commands
from trainmaster.core.state import State
from trainmaster.daemon.device_health import is_aside_for, set_aside
from trainmaster.daemon.driver import Driver
from trainmaster.daemon.failed_gangs import FailedGang
from trainmaster.engines.local.privileges import is_users
from trainmaster.engines.protocol import EngineError
from trainmaster.failures.pair_rule import (
    Pair,
    PairTest,
    bad_nodes,
    good_nodes,
    next_pairs,
    undecided,
)
from trainmaster.model.device_aside import AsideCause
from trainmaster.text.formatting import listing

log = structlog.get_logger("trainmaster.health")

PROGRAM = "trainmaster.profiling.node_pair"
PATIENCE_S = 30.0
"""How long the two wait for each other, after their imports."""
LOOK_S = 1.0
GOOD_FOR_MS = 30 * 60_000
"""How long nodes that were found good are not tried again for the next failure."""


class NodeTests:
    """Tries the nodes of failed gangs, one gang after the other."""

    def __init__(self, driver: Driver, patience_s: float = PATIENCE_S) -> None:
        self._driver = driver
        self._patience_s = patience_s
        self._limit_s = 2 * patience_s + 30.0
        self._good_until: dict[str, int] = {}
        """Nodes that were found good, and until when that counts."""
        self._open: dict[frozenset[str], str] = {}
        """Nodes of which one is bad, and nobody can say which: a sentence."""

    def notes(self) -> list[str]:
        return [*self._open.values()]

    async def watch(self) -> None:
        """Try them, in the background."""
        while True:
            await asyncio.sleep(LOOK_S)
            for gang in self._driver.failed_gangs.take():
                try:
                    await self.test(gang)
                except (EngineError, OSError) as problem:
                    log.warning("the nodes of a gang could not be tried", why=str(problem))
                except Exception:  # the manager goes on without it
                    log.exception("the nodes of a gang could not be tried", job=gang.run.job)

    async def test(self, gang: FailedGang) -> Sequence[PairTest]:
        """Find the bad node of these, and set it aside."""
        now = self._driver.clock.now()
        suspects = [each for each in gang.nodes if self._is_there(each)]
        if all(self._good_until.get(each, 0) > now for each in suspects):
            return ()
        others = [each for each in self._there() if each not in suspects]
        on_gpus = all(self._idle_gpu(each) is not None for each in suspects)
        tests: list[PairTest] = []
        while pairs := next_pairs(suspects, others, tests):
            # one by one: pairs at the same time would slow each other down
            found = [await self._try(gang, pair, on_gpus=on_gpus) for pair in pairs]
            if None not in found:
                tests += [each for each in found if each is not None]
            elif on_gpus:  # a job came into it
                on_gpus, tests = False, []
            else:
                return ()
        self._judge(gang, suspects, tests)
        return tests

    async def _try(self, gang: FailedGang, pair: Pair, *, on_gpus: bool) -> PairTest | None:
        """One all-reduce; None: it was not tried, or a job disturbed it."""
        engine, given = self._driver.engine, self._driver.dispatcher.given
        host = engine.host_of(pair[0])
        gpus = [self._idle_gpu(each) if on_gpus else None for each in pair]
        if on_gpus and None in gpus:
            return None
        before = [given.get(gpu) for gpu in gpus if gpu is not None]
        asked = await engine.probe(pair[0], (PROGRAM, "port", host), self._limit_s)
        if asked.code != 0:
            log.warning("a node gives no port to meet at", node=pair[0], host=host, code=asked.code)
            return None
        shared = {**self._python_of(gang), "host": host, "patience_s": self._patience_s}
        shared["port"] = json.loads(asked.output)
        uuids = self._driver.controller.state.topology.uuids
        requests = [
            {**shared, "rank": rank, "uuid": None if gpu is None else uuids[gpu]}
            for rank, gpu in enumerate(gpus)
        ]
        probed = await asyncio.gather(
            *(
                engine.probe(node, (PROGRAM, json.dumps(request)), self._limit_s)
                for node, request in zip(pair, requests, strict=True)
            )
        )
        if before != [given.get(gpu) for gpu in gpus if gpu is not None]:
            return None
        return _judged(pair, [(each.code, each.output) for each in probed])

    def _judge(self, gang: FailedGang, suspects: Sequence[str], tests: Sequence[PairTest]) -> None:
        state, now = self._driver.controller.state, self._driver.clock.now()
        bad, left = dict(bad_nodes(suspects, tests)), undecided(suspects, tests)
        good = good_nodes(tests)
        self._good_until |= dict.fromkeys(good, now + GOOD_FOR_MS)
        self._open = {
            nodes: said for nodes, said in self._open.items() if not nodes & (good | bad.keys())
        }
        began = f"Job {gang.run.job} failed ({gang.why})."
        log.info("nodes of a gang were tried", job=gang.run.job, good=sorted(good), bad=bad)
        if left:
            self._open[frozenset(left)] = (
                f"{began} All-reduces of the nodes {listing(list(left))} fail, and no good node is there to"
                " tell which of them is bad."
            )
        cause = AsideCause.SELF_TEST
        self._driver.inbox.follow_up(
            set_aside(state.topology, gpu, cause, f"{began} {why}")
            for name, why in bad.items()
            for gpu in _gpus_of(state, name)
            if not is_aside_for(state, gpu, cause)
        )

    # -- nodes -------------------------------------------------------------------------------------------

    def _there(self) -> list[str]:
        """Nodes that jobs may be started on."""
        return [
            node.name
            for node in self._driver.controller.state.topology.nodes
            if self._is_there(node.name)
        ]

    def _is_there(self, name: str) -> bool:
        state = self._driver.controller.state
        node = state.topology.node_by_name.get(name)
        if node is None or node.index in state.away or not self._driver.engine.host_of(name):
            return False
        return any(gpu not in state.gpus_aside for gpu in _gpus_of(state, name))

    def _idle_gpu(self, name: str) -> int | None:
        """A GPU of the node that nothing is on."""
        state = self._driver.controller.state
        return next(
            (
                gpu
                for gpu in (_gpus_of(state, name) if state.topology.uuids else ())
                if state.occupancy.mode[gpu] is None and gpu not in state.releasing
            ),
            None,
        )

    def _python_of(self, gang: FailedGang) -> dict[str, Any]:
        """The Python of the job, which has its torch; empty: that of the node's launcher.

        The program of a job that runs as its user is never started as the manager's or the raylet's.
        """
        if gang.recipe is None or is_users(gang.recipe.account):
            return {"python": "", "path": ""}
        try:
            path = self._driver.engine.environment(gang.run)[1].get("PATH", "")
        except FileNotFoundError:
            return {"python": "", "path": ""}
        return {"python": _python_in(gang.recipe.command), "path": path}


def _gpus_of(state: State, name: str) -> range:
    """None of a node that was forgotten meanwhile."""
    node = state.topology.node_by_name.get(name)
    return range(0) if node is None else range(node.first_gpu, node.first_gpu + node.gpus)


def _python_in(command: tuple[str, ...]) -> str:
    words = (word for each in simple_commands(command) for word in (*each.before, *each.words))
    return next((word for word in words if PYTHON.fullmatch(base_name(word))), "")


def _judged(pair: Pair, said: Sequence[tuple[int | None, bytes]]) -> PairTest | None:
    """What two processes make of it; None: it could not be tried."""
    answers: list[Mapping[str, Any]] = []
    for code, output in said:
        if code is None:
            answers.append({"trouble": "it did not end"})
            continue
        try:
            answers.append(json.loads(output))
        except ValueError:
            answers.append({"untried": f"it ended with {code}"})
    if untried := [str(each["untried"]) for each in answers if "untried" in each]:
        log.warning("two nodes could not be tried", nodes=pair, why=untried[0])
        return None
    if trouble := [str(each["trouble"]) for each in answers if each.get("trouble")]:
        return PairTest(pair, None, f"{trouble[0]}.")
    return PairTest(pair, answers[0].get("bytes_per_s"))
