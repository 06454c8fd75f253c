"""GPUs over time: means of looks, as far back as they are kept."""

from __future__ import annotations

from trainmaster.daemon.gpu_curves import POINTS, STEP_MS, GpuCurves
from trainmaster.gpu.driver import Reading
from trainmaster.model.units import GIB

BEGIN = 1000 * STEP_MS


class Looks:
    """Curves by a clock of the test's own."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.curves = GpuCurves(lambda: self.now)

    def look(self, step: float, util_ppm: int | None, temperature: int | None = 40) -> None:
        self.now = BEGIN + round(step * STEP_MS)
        self.curves.add([Reading("x", 80 * GIB, 8 * GIB, util_ppm, temperature, 300)])

    def seen(self, since_step: int = 0) -> list[tuple[float | None, ...]]:
        found = self.curves.of("x", self.curves.times_ms(BEGIN + since_step * STEP_MS))
        assert found is not None
        return found


def test_a_point_is_the_mean_of_its_looks() -> None:
    looks = Looks()
    looks.look(0, 200_000)
    looks.look(0.5, 400_000)
    looks.look(1, None, None)
    assert looks.seen() == [(0.3, 8 * GIB, 40, 300), (None, 8 * GIB, None, 300)]


def test_steps_without_a_look_are_gaps() -> None:
    looks = Looks()
    looks.look(0, 1_000_000)
    looks.look(3, 500_000)
    assert [point[0] for point in looks.seen()] == [1, None, None, 0.5]
    looks.now += 2 * STEP_MS
    assert [point[0] for point in looks.seen(3)] == [0.5, None, None], "nobody has looked since"


def test_what_does_not_answer_says_nothing() -> None:
    looks = Looks()
    looks.curves.add([Reading("x", trouble="it fell off the bus")])
    assert looks.seen() == [(None, None, None, None)]
    assert looks.curves.of("y", looks.curves.times_ms(BEGIN)) is None


def test_only_so_many_points_are_kept() -> None:
    looks = Looks()
    for step in range(POINTS + 10):
        looks.look(step, step * 100)
    times = looks.curves.times_ms(0)
    assert (len(times), times[0]) == (POINTS, BEGIN + 10 * STEP_MS)
    assert [round((point[0] or 0) * 10_000) // 10 for point in looks.seen()[:3]] == [1, 1, 1]
    looks.look(5 * POINTS, 0)
    assert [point[0] for point in looks.seen()].count(None) == POINTS - 1


def test_a_gpu_that_is_there_no_more_is_forgotten_with_its_last_point() -> None:
    looks = Looks()
    looks.curves.add([Reading("gone", 80 * GIB, 8 * GIB, 1, 40, 300)])
    looks.look(POINTS - 1, 0)
    assert looks.curves.of("gone", looks.curves.times_ms(0)) is not None
    looks.look(POINTS, 0)
    assert looks.curves.of("gone", looks.curves.times_ms(0)) is None
    assert looks.curves.of("x", looks.curves.times_ms(0)) is not None
