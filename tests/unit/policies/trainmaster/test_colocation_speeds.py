"""Speeds on a shared GPU: from utilisation alone, corrected by pairs of the same kinds, then measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import a_job
from trainmaster.core.state import JobRecord
from trainmaster.model.codec import decode, encode
from trainmaster.model.job import Job
from trainmaster.model.packing_score import Evidence
from trainmaster.model.placement import Sharing
from trainmaster.model.plan import FrozenMap
from trainmaster.model.units import NOMINAL
from trainmaster.policies.trainmaster.colocation_speeds import (
    MOST_MEASURED,
    NOTHING_MEASURED,
    ColocationSpeeds,
    JobKind,
    kind_of,
)

TURNS, MPS = Sharing.TIME, Sharing.MPS
HALF = [JobKind(f"ada/half{n}", 500_000) for n in range(5)]


def speeds(*rates: float) -> list[int]:
    return [round(rate * NOMINAL) for rate in rates]


def score(known: ColocationSpeeds, *kinds: JobKind, by: Sharing = TURNS) -> float:
    found = known.predicted(kinds, by)
    assert found is not None
    return sum(found) / NOMINAL


def taught(*pairs: tuple[JobKind, JobKind, float, float], by: Sharing = TURNS) -> ColocationSpeeds:
    known = NOTHING_MEASURED
    for one, other, first, second in pairs:
        known = known.with_measured((one, other), speeds(first, second), by)
    return known


@pytest.mark.parametrize(("by", "expected"), [(TURNS, 1.8), (MPS, 1.88)])
def test_two_halves_by_utilisation_alone(by: Sharing, expected: float) -> None:
    """By turns each waits for a fifth of the other's half; under MPS that half is 0.6 of it."""
    assert score(NOTHING_MEASURED, HALF[0], HALF[1], by=by) == pytest.approx(expected, abs=0.02)


def test_a_measured_pair_is_itself_and_its_sharing_alone() -> None:
    known = taught((HALF[0], HALF[1], 0.5, 0.45))
    assert score(known, HALF[0], HALF[1]) == pytest.approx(0.95)
    assert score(known, HALF[1], HALF[0]) == pytest.approx(0.95)
    assert score(known, HALF[0], HALF[1], by=MPS) > 1


def test_a_kind_that_harms_others_is_expected_to_harm_the_next() -> None:
    harmful, *others = HALF
    pairs = [(harmful, other, 0.9, 0.3) for other in others[:3]]
    known = taught(*pairs)
    new = others[3]
    beside_it = known.predicted((harmful, new), TURNS)
    assert beside_it is not None
    assert beside_it[1] < 0.75 * beside_it[0]
    assert known.speeds_of((harmful, new), TURNS)[1] is Evidence.LEARNED  # type: ignore[index]
    without = replace(known, effects=FrozenMap())
    assert score(known, others[0], others[1]) > score(known, harmful, new)
    assert score(without, others[0], others[1]) == pytest.approx(score(without, harmful, new))


def test_pairs_that_were_never_together_are_predicted_better_after_others() -> None:
    """A world of two effects that the estimator does not know: each kind suffers and harms in its own way."""
    keeps = {kind: 0.5 + 0.1 * n for n, kind in enumerate(HALF)}
    leaves = {kind: 1 - 0.1 * n for n, kind in enumerate(HALF)}
    pairs = [(one, other) for n, one in enumerate(HALF) for other in HALF[n + 1 :]]

    def true(one: JobKind, other: JobKind) -> float:
        return min(1.0, keeps[one] * leaves[other])

    def error(known: ColocationSpeeds) -> float:
        return sum(
            abs(score(known, one, other) - true(one, other) - true(other, one))
            for one, other in pairs[::3]
        )

    seen = [pair for pair in pairs if pair not in pairs[::3]]
    known = taught(*[(one, other, true(one, other), true(other, one)) for one, other in seen])
    assert error(known) < 0.5 * error(NOTHING_MEASURED)
    assert error(known) < 0.8 * error(replace(known, effects=FrozenMap()))


def test_only_the_first_measurement_of_a_pair_says_something_of_others() -> None:
    known = taught((HALF[0], HALF[1], 0.5, 0.5))
    again = known.with_measured((HALF[0], HALF[1]), speeds(0.5, 0.5), TURNS)
    assert (again.effects, again.trust_ppm, again.groups) == (known.effects, known.trust_ppm, 1)


def test_published_pairs_are_not_corrected_by_kind() -> None:
    lm, net = JobKind("lm", 500_000), JobKind("resnet50", 500_000)
    known = taught((lm, HALF[0], 0.4, 0.4))
    found = known.speeds_of((lm, net), TURNS)
    assert found is not None
    assert found.evidence is Evidence.PUBLISHED
    assert found.rates == (known.trust_ppm, 990_000 * known.trust_ppm // NOMINAL)


def test_what_is_learned_stays_bounded() -> None:
    known = NOTHING_MEASURED
    for n in range(20):
        known = known.with_measured((JobKind(f"{n}", 500_000), HALF[0]), speeds(0, 1), TURNS)
    assert all(
        NOMINAL // 10 <= part <= 10 * NOMINAL
        for effect in known.effects.values()
        for part in effect
    )
    assert len(known.effects) <= MOST_MEASURED


def test_it_is_a_value_in_the_store_and_older_stores_have_less_of_it() -> None:
    known = taught((HALF[0], HALF[1], 0.5, 0.6))
    stored: Any = encode(known)
    assert decode(stored) == known
    for name in ("groups", "effects"):
        del stored[name]
    older = decode(stored)
    assert older == replace(known, groups=0, effects=FrozenMap())


def record_of(job: Job) -> JobRecord:
    return JobRecord(job, 0, 0, None, None)


@pytest.mark.parametrize(
    ("model", "user", "app", "name"),
    [
        ("ResNet-50 (batch size 64)", "ada", "train.py", "resnet50"),
        ("", "ada", "sweep-17.py", "ada/sweep-#.py"),
        ("", "bo", "sweep-18.py", "bo/sweep-#.py"),
        ("", "ada", "", ""),
    ],
)
def test_a_kind_is_a_model_or_a_users_program(model: str, user: str, app: str, name: str) -> None:
    job = replace(a_job("a", 1), model=model, user=user, app=app, gpu_util_ppm=234_000)
    assert kind_of(record_of(job)) == JobKind(name, 200_000)


@pytest.mark.parametrize(
    ("kind", "is_untried"),
    [
        (JobKind("resnet50", None), False),
        (JobKind("", 200_000), False),
        (JobKind("ada/train.py", 200_000), False),
        (JobKind("ada/train.py", None), True),
        (JobKind("", None), True),
    ],
)
def test_a_program_is_not_tried_before_its_use_is_known(kind: JobKind, is_untried: bool) -> None:
    assert kind.is_untried is is_untried
