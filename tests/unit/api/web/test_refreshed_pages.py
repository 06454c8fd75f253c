"""How often pages ask the manager, and how much at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from trainmaster.api.web.api_client import Refused
from trainmaster.api.web.pages import users
from trainmaster.api.web.pages.job import JobPage
from trainmaster.api.web.pages.usage import UsagePage
from trainmaster.api.web.parts import refreshed
from trainmaster.api.web.parts.refreshed import interval_s, keep_fresh


class Anything:
    """Elements of a page that take whatever is shown."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *args: object) -> None:
        pass


class Timer:
    def __init__(self, interval: float, ask: Callable[[], Any], *, immediate: bool) -> None:
        self.interval, self.ask, self.immediate = interval, ask, immediate


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[Timer]:
    made: list[Timer] = []

    def timer(interval: float, ask: Callable[[], Any], *, immediate: bool = True) -> Timer:
        made.append(Timer(interval, ask, immediate=immediate))
        return made[-1]

    monkeypatch.setattr(refreshed, "ui", SimpleNamespace(label=Anything(), timer=timer))
    return made


def test_a_manager_that_answers_slowly_is_asked_more_seldom(
    monkeypatch: pytest.MonkeyPatch, timers: list[Timer]
) -> None:
    now_s = 0.0
    monkeypatch.setattr(refreshed, "time", SimpleNamespace(monotonic=lambda: now_s))
    takes_s = iter((0.1, 1.0, 10.0, 0.1))

    async def refresh() -> None:
        nonlocal now_s
        now_s += (took_s := next(takes_s))
        if took_s == 10:
            raise Refused(0, "away", "The manager does not answer.")

    async def run() -> None:
        await keep_fresh(refresh, 5.0)
        (timer,) = timers
        pauses = [timer.interval]
        for _ in range(3):
            await timer.ask()
            pauses.append(timer.interval)
        assert pauses == [5.0, 21.0, 40.0, 5.0]

    asyncio.run(run())
    assert interval_s(60.0, 1.0) == 60.0


def test_the_page_of_users_asks_for_their_usage_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, timers: list[Timer]
) -> None:
    pages: dict[str, Callable[[], Any]] = {}

    class Api:
        async def get(self, path: str, **query: Any) -> Any:
            return {"limits": [], "rows": []}

    async def viewer() -> Any:
        return SimpleNamespace(api=Api())

    def page(path: str) -> Callable[[Any], Any]:
        return lambda made: pages.setdefault(path, made)

    monkeypatch.setattr(users, "ui", SimpleNamespace(page=page, label=Anything()))
    for name in ("frame", "Sheet"):
        monkeypatch.setattr(users, name, Anything())
    users.add(SimpleNamespace(viewer=viewer))  # type: ignore[arg-type]
    asyncio.run(pages["/users"]())
    assert [each.interval for each in timers] == [60.0]


def test_the_page_of_usage_asks_for_one_sum_after_the_other() -> None:
    asked, now, most = list[str](), 0, 0

    class Api:
        async def get(self, path: str, **query: Any) -> Any:
            nonlocal now, most
            asked.append(path)
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1
            numbers = dict.fromkeys(
                ("gpu_hours", "cost", "lost_gpu_hours", "unpriced_gpu_hours", "jobs"), 0
            )
            return {"total": numbers, "currency": "", "rows": []}

    async def show(*args: object) -> None:
        pass

    page = object.__new__(UsagePage)
    page._api = Api()  # type: ignore[assignment]
    page._days = SimpleNamespace(value=30)  # type: ignore[assignment]
    for name in ("_tiles", "_unpriced", "_lost", "_reasons"):
        setattr(page, name, Anything())
    page._sheets = dict.fromkeys(("queue", "user", "outcome", "gpu-type"), Anything())  # type: ignore[arg-type]
    page._over_time = SimpleNamespace(show=show)  # type: ignore[assignment]
    asyncio.run(page.refresh())
    assert asked == ["/usage"] * 5 + ["/failures"]
    assert most == 1


def test_the_sentences_of_a_job_are_asked_for_again_after_a_part_was_refused() -> None:
    """Its step was shown beside a sentence that it has not reported."""
    explained: list[object] = []
    job: dict[str, Any] = {
        **dict.fromkeys(("reason", "hung", "progress", "last_lines", "failure"), None),
        **dict.fromkeys(("transition", "attempt", "saved_at_s", "priority", "queue"), None),
        **dict.fromkeys(("failures", "prerun", "name", "user", "array"), None),
        "id": "1",
        "state": "running",
        "devices": [],
        "spec": {},
        "elements": {"jobs": 1},
    }

    class Api:
        is_away = False

        async def get(self, path: str, **query: Any) -> Any:
            if path == "/jobs" and self.is_away:
                raise Refused(503, "unavailable", "Not now.")
            if path.endswith("/explain"):
                return {"remarks": [job["progress"]]}
            return dict(job) if path == "/jobs/1" else {"jobs": []}

    page = object.__new__(JobPage)
    page._api, page._path, page._id = Api(), "/jobs/1", "1"  # type: ignore[assignment]
    page._is_array, page._changed_by = True, None
    page._viewer = SimpleNamespace(may_change=False)  # type: ignore[assignment]
    for name in ("_actions", "_title", "_buttons", "_numbers", "_failure", "_file", "_elements"):
        setattr(page, name, Anything())
    page._why = SimpleNamespace(show=lambda said, story: explained.append(said["remarks"]))  # type: ignore[assignment]

    async def run() -> None:
        page._turn = asyncio.Lock()
        page._rest_at = asyncio.get_running_loop().time()
        await page.refresh()
        job["progress"] = {"step": 1, "total_steps": None, "loss": None, "steps_per_s": None}
        page._api.is_away = True  # type: ignore[attr-defined]
        with pytest.raises(Refused):
            await page.refresh()
        page._api.is_away = False  # type: ignore[attr-defined]
        await page.refresh()
        assert explained == [[None], [job["progress"]]]

    asyncio.run(run())
