"""Our hooks come and go while torch iterates over its own. `Optimizers` iterates as torch does."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from trainmaster_sdk import step_hooks


class Optimizers(ModuleType):
    """`torch.optim.optimizer`, as far as hooks go."""

    def __init__(self) -> None:
        super().__init__("optimizers")
        self.hooks: OrderedDict[int, Callable[..., None]] = OrderedDict()

    def register_optimizer_step_post_hook(self, hook: Callable[..., None]) -> None:
        self.hooks[len(self.hooks)] = hook

    def step(self) -> None:
        for hook in self.hooks.values():
            hook(self, (), {})


@pytest.fixture
def optimizers(monkeypatch: pytest.MonkeyPatch) -> Optimizers:
    monkeypatch.setattr(step_hooks, "_calls", {})
    monkeypatch.setitem(step_hooks.sys.modules, "torch", SimpleNamespace())  # type: ignore[attr-defined]
    return Optimizers()


def test_one_that_removes_itself_does_not_disturb_the_others(optimizers: Optimizers) -> None:
    called: list[str] = []

    def once(*given: Any) -> None:
        called.append("once")
        assert first is not None
        first.remove()

    first = step_hooks.add(optimizers, once)
    step_hooks.add(optimizers, lambda *given: called.append("always"))
    optimizers.step()
    optimizers.step()
    assert called == ["once", "always", "always"]
    assert len(optimizers.hooks) == 1, "torch knows one hook of ours"


def test_nobody_has_to_keep_what_add_returns(optimizers: Optimizers) -> None:
    called: list[int] = []
    for number in range(3):
        step_hooks.add(optimizers, lambda *given, number=number: called.append(number))
    optimizers.step()
    assert called == [0, 1, 2]


def test_what_is_compiled_leaves_them_out(
    optimizers: Optimizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[int] = []
    step_hooks.add(optimizers, lambda *given: called.append(1))
    compiler = SimpleNamespace(is_compiling=lambda: True)
    monkeypatch.setitem(step_hooks.sys.modules, "torch", SimpleNamespace(compiler=compiler))  # type: ignore[attr-defined]
    optimizers.step()
    assert called == []


def test_a_torch_without_hooks_is_left_alone() -> None:
    assert step_hooks.add(ModuleType("old"), lambda *given: None) is None
