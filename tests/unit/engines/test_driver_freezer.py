"""What the program is told that freezes a run by the driver."""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from typing import ClassVar

import pytest

from trainmaster.engines.local import driver_freezer
from trainmaster.engines.local.driver_freezer import DriverFreezer
from trainmaster_sdk.wire import Message


class Helper:
    """Ends at once as it should."""

    told: ClassVar[list[Sequence[str]]] = []

    def __init__(self, argv: Sequence[str], *rest: object) -> None:
        self.told.append(argv[2:])
        self.is_over = False
        plan: Message = {"plan": [7], "bytes": 1}
        self.lines = [plan, {"end": "frozen" if argv[2] == "freeze" else "running"}]

    def read(self) -> None: ...

    def kill(self) -> None: ...

    def tell(self, said: Message) -> bool:
        return False  # it has died meanwhile


def test_it_is_told_the_gpus_that_the_run_has_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_freezer, "HelperProcess", Helper)
    monkeypatch.setattr(Helper, "told", [])
    with selectors.DefaultSelector() as selector:
        freezer = DriverFreezer(
            lambda: [7], lambda: [7], ["GPU-a", "GPU-a", "GPU-b"], {}, selector, set()
        )
        for begin, end in (
            (freezer.release, "frozen"),
            (lambda: freezer.restore({"GPU-a": "GPU-c"}), "running"),
            (freezer.release, "frozen"),
        ):
            begin()
            result = freezer.result(0.0)
            assert result is not None
            assert result.end == end
    assert Helper.told == [
        ("freeze", "--stay", "--gpu=GPU-a", "--gpu=GPU-b", "7"),
        ("thaw", "--map=GPU-a=GPU-c", "7"),
        ("freeze", "--stay", "--gpu=GPU-c", "--gpu=GPU-b", "7"),
    ]


@pytest.mark.parametrize(("ranks", "is_all"), [([7], True), ([7, 8], False), ([6], False)])
def test_it_says_whether_every_rank_has_state_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, ranks: list[int], is_all: bool
) -> None:
    """A rank without, or a launcher, would use the GPU that its environment names, after a move too."""
    monkeypatch.setattr(driver_freezer, "HelperProcess", Helper)
    with selectors.DefaultSelector() as selector:
        freezer = DriverFreezer(lambda: [6, 7, 8], lambda: ranks, ["GPU-a"], {}, selector, set())
        freezer.release()
        result = freezer.result(0.0)
    assert result is not None
    assert (result.end, result.is_all_on_gpus) == ("frozen", is_all)
