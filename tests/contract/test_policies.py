"""What every policy of the catalog keeps, whatever it decides."""

from __future__ import annotations

import pickle
from collections.abc import Hashable
from dataclasses import fields, is_dataclass, replace

import pytest

from tests.builders import a_job, a_policy, a_scenario, cluster, traced
from tests.property.drive import Drive
from tests.property.worlds import CONTENDERS
from trainmaster.catalog import POLICIES, CatalogError, policy_class, policy_names
from trainmaster.config.options import OptionError, describe_options, effective, read_options
from trainmaster.core.controller import Controller
from trainmaster.model import events as e
from trainmaster.model.placement import Role
from trainmaster.model.queue import Queue
from trainmaster.perf.perf_model import DEFAULT

every_policy = pytest.mark.parametrize("name", POLICIES)
every_contender = pytest.mark.parametrize("contender", CONTENDERS)


def test_the_names_are_those_of_the_contract() -> None:
    assert " ".join(POLICIES) == (
        "fifo yarn-cs fair srtf srsf las gittins tiresias-l tiresias-g qssf philly gandiva optimus"
        " max-min afs-l goodput themis antman big-brain two-level trainmaster"
    )
    assert policy_names()[: len(POLICIES)] == tuple(POLICIES)


@every_policy
def test_a_class_knows_its_own_name(name: str) -> None:
    assert policy_class(name).name == name


def test_an_unknown_name_is_one_sentence_with_the_nearest() -> None:
    with pytest.raises(
        CatalogError, match="there is no policy 'tiresias'; did you mean tiresias-l"
    ):
        policy_class("tiresias")
    with pytest.raises(CatalogError, match="there are fifo, yarn-cs"):
        policy_class("zzz")


# -- options ---------------------------------------------------------------------------------------

OPTIONS = {
    "fifo": {"backfill": "none", "elastic": "rigid"},
    "yarn-cs": {"backfill": "none"},
    "srtf": {},
    "srsf": {},
    "gandiva": {
        "quantum_s": 60,
        "packing": "on",
        "migration": "on",
        "grow": "on",
        "trial_s": 60,
        "starve_after_s": 0,
        "min_run_s": 0,
    },
    "las": {"quantum_s": 60, "starve_after_s": 0, "min_run_s": 0},
    "gittins": {
        "quantum_s": 60,
        "service_samples": "",
        "classes": "user",
        "starve_after_s": 0,
        "min_run_s": 0,
    },
    "tiresias-g": {
        "thresholds_gpu_s": "3250,7200,18000",
        "promote_knob": 0,
        "pack_limit": 0.4,
        "service_samples": "",
        "classes": "user",
        "starve_after_s": 0,
        "min_run_s": 0,
    },
    "themis": {"filter_f": 0.8, "lease_s": 600, "starve_after_s": 0, "min_run_s": 0},
    "tiresias-l": {"thresholds_gpu_s": "3250,7200,18000", "promote_knob": 0, "pack_limit": 0.4},
    "qssf": {"backfill": "none", "rolling": 0.1},
    "optimus": {"interval_s": 600, "learn": "fit", "starve_after_s": 0, "min_run_s": 0},
    "max-min": {"resize_cost_s": 0, "starve_after_s": 0, "min_run_s": 0},
    "afs-l": {"resize_cost_s": 0, "starve_after_s": 0, "min_run_s": 0},
    "goodput": {
        "interval_s": 60,
        "power": -1,
        "resize_cost_s": 30,
        "starve_after_s": 0,
        "min_run_s": 0,
    },
    "philly": {
        "acquire_timeout_s": 150,
        "backoff_s": 120,
        "relax_after": 1,
        "queues": "",
        "utilisation_threshold": 0.9,
        "starve_after_s": 0,
        "min_run_s": 0,
    },
    "fair": {
        "queues": "",
        "inner": "fifo",
        "inner_options": "",
        "preemption": "on",
        "preempt_timeout_s": 300,
        "share_threshold": 0.5,
        "utilisation_threshold": 0.8,
        "half_life_s": 0,
        "starve_after_s": 0,
        "min_run_s": 0,
    },
    "two-level": {"queues": "", "inner": "tiresias-l", "inner_options": "", "min_run_s": 0},
    "trainmaster": {"queues": "", "starve_after_s": 0, "min_run_s": 60},
    "antman": {"queues": "", "util_limit": 0.8, "starve_after_s": 0, "min_run_s": 0},
    "big-brain": {"concurrency": "auto"},
}


@every_policy
def test_options_are_frozen_documented_and_all_effective(name: str) -> None:
    kind = policy_class(name).options_type
    assert is_dataclass(kind)
    options = kind()
    described = describe_options(kind)
    assert effective(options).keys() == {each.name for each in described}
    for each in described:
        assert len(each.help_text.split()) > 2, f"{name}.{each.name} says too little"
        assert effective(options)[each.name] == each.default
        with pytest.raises(AttributeError):
            setattr(options, each.name, 1)
    assert hash(options) == hash(kind())


@every_policy
def test_defaults_are_those_of_the_contract(name: str) -> None:
    shown = effective(policy_class(name).options_type())
    assert OPTIONS[name].items() <= shown.items()


@every_policy
def test_what_is_shown_can_be_read_again(name: str) -> None:
    kind = policy_class(name).options_type
    shown = {key: str(value) for key, value in effective(kind()).items()}
    assert read_options(name, kind, shown) == kind()


@every_policy
def test_a_wrong_option_is_one_sentence(name: str) -> None:
    kind = policy_class(name).options_type
    with pytest.raises(OptionError, match=f"{name} has no option 'colour'; "):
        read_options(name, kind, {"colour": "blue"})
    for each in fields(kind):
        with pytest.raises(OptionError, match=f"{name}: {each.name} must be .*, not 'blue'."):
            read_options(name, kind, {each.name: "blue"})


BAD_VALUES = [
    ("las", "quantum_s", "0"),
    ("las", "quantum_s", "-3"),
    ("las", "quantum_s", "nan"),
    ("las", "quantum_s", "inf"),
    ("tiresias-l", "thresholds_gpu_s", "5,4"),
    ("tiresias-l", "thresholds_gpu_s", "4,4"),
    ("tiresias-l", "thresholds_gpu_s", "0"),
    ("tiresias-l", "thresholds_gpu_s", ""),
    ("tiresias-l", "thresholds_gpu_s", "4,"),
    ("tiresias-l", "promote_knob", "-1"),
    ("tiresias-l", "promote_knob", "nan"),
    ("tiresias-l", "pack_limit", "1.5"),
    ("fifo", "backfill", "always"),
    ("gittins", "classes", "queues"),
    ("tiresias-g", "classes", ""),
    ("qssf", "backfill", "hard"),
    ("qssf", "rolling", "1.1"),
    ("gandiva", "quantum_s", "0"),
    ("gandiva", "trial_s", "-1"),
    ("gandiva", "packing", "maybe"),
    ("optimus", "interval_s", "0"),
    ("optimus", "learn", "guess"),
    ("goodput", "interval_s", "0"),
    ("goodput", "power", "1.5"),
    ("goodput", "power", "nan"),
    ("goodput", "resize_cost_s", "-1"),
    ("max-min", "resize_cost_s", "-1"),
    ("afs-l", "resize_cost_s", "nan"),
]


@pytest.mark.parametrize(("name", "key", "text"), BAD_VALUES)
def test_bad_values(name: str, key: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"{name}: {key} must be "):
        read_options(name, policy_class(name).options_type, {key: text})


# -- deciding --------------------------------------------------------------------------------------


@every_contender
def test_an_empty_cluster_gives_an_empty_plan(contender: str) -> None:
    name, options = CONTENDERS[contender]
    policy = a_policy(name, **options)
    controller = Controller(cluster("2x2"), policy)
    plan = policy.plan(controller.view, policy.first_memo(), 5_000)
    assert plan.actions == ()
    for facts in (
        [e.NodeDraining(0)],
        [e.NodeLeft(0), e.NodeLeft(1)],
        [e.QueueDefined(Queue("q"))],
    ):
        decision = controller.step(6_000, facts)  # type: ignore[arg-type]
        assert not decision.orders
        assert not decision.refusals


@every_contender
def test_a_memo_is_a_value(contender: str) -> None:
    name, options = CONTENDERS[contender]
    jobs = [traced(f"j{n}", 1 + n % 2, 9, at_s=2 * n) for n in range(8)]
    drive = Drive(a_scenario(jobs, "1x2", DEFAULT), a_policy(name, **options))
    while drive.simulation.step():
        memo = drive.simulation.controller.memo
        assert isinstance(memo, Hashable)
        assert hash(memo) is not None
        assert pickle.loads(pickle.dumps(memo)) == memo


@every_contender
def test_a_plan_leaves_the_state_as_it_was(contender: str) -> None:
    """Deciding twice decides the same: only an admitted plan changes anything."""
    name, options = CONTENDERS[contender]
    jobs = [traced(f"j{n}", 1 + n % 2, 9, at_s=2 * n) for n in range(8)]
    drive = Drive(a_scenario(jobs, "1x2", DEFAULT), a_policy(name, **options))
    controller = drive.simulation.controller
    plan, policy = controller.policy.plan, controller.policy
    again = a_policy(name, **options)

    def twice(view: object, memo: object, now: int) -> object:
        view.forget()  # type: ignore[attr-defined]
        first = again.plan(view, memo, now)  # type: ignore[arg-type]
        view.forget()  # type: ignore[attr-defined]
        again.forget()
        second = plan(view, memo, now)  # type: ignore[arg-type]
        assert first.actions == second.actions
        assert hash(first.memo) == hash(second.memo)
        return second

    policy.plan = twice  # type: ignore[method-assign, assignment]
    drive.run()
    assert any(step.decision.orders for step in drive.steps)


@every_policy
def test_oracles_are_refused_live_in_one_sentence(name: str) -> None:
    """No oracle facts, as with a real cluster: those that need one say so."""
    policy = a_policy(name)
    assert policy.needs_oracle == (name in ("srtf", "srsf"))
    controller = Controller(cluster("1x1"), policy)
    decision = controller.step(0, [e.JobSubmitted(a_job("a"))])
    if policy.needs_oracle:
        (refusal,) = decision.refusals
        said = "LookupError: job a has no oracle: this policy runs in simulation only"
        assert refusal.detail.startswith(said)
        with pytest.raises(
            LookupError, match="job a has no oracle: this policy runs in simulation only"
        ):
            policy.plan(controller.view, policy.first_memo(), 0)
    else:
        assert not decision.refusals
        assert len(decision.orders) == 1


@every_contender
def test_it_never_asks_to_be_woken_in_the_past(contender: str) -> None:
    name, options = CONTENDERS[contender]
    jobs = [traced(f"j{n}", 1 + n % 2, 9, at_s=2 * n) for n in range(8)]
    drive = Drive(a_scenario(jobs, "1x2", DEFAULT), a_policy(name, **options))
    policy = drive.simulation.policy
    plan = policy.plan
    woken: list[tuple[int, int]] = []

    def watched(view: object, memo: object, now: int) -> object:
        made = plan(view, memo, now)  # type: ignore[arg-type]
        if made.wake_at is not None:
            woken.append((now, made.wake_at))
        return made

    policy.plan = watched  # type: ignore[method-assign, assignment]
    drive.run()
    assert all(wake > now for now, wake in woken)


@every_contender
def test_it_can_say_why_each_job_waits(contender: str) -> None:
    name, options = CONTENDERS[contender]
    jobs = [traced(f"j{n}", 1 + n % 2, 9, at_s=n) for n in range(8)]
    drive = Drive(a_scenario(jobs, "1x2", DEFAULT), a_policy(name, **options))
    controller = drive.simulation.controller
    asked = 0
    while drive.simulation.step():
        for record in controller.view.waiting():
            reason = controller.explain(record.id)
            assert reason.need == record.demand.nominal.total_share
            assert 0 <= reason.largest_block <= reason.free
            asked += 1
    assert asked


@every_contender
def test_opportunistic_jobs_run_too(contender: str) -> None:
    name, options = CONTENDERS[contender]
    job = traced("a", 1, 5)
    job = replace(job, job=replace(job.job, role=Role.OPPORTUNISTIC))
    drive = Drive(a_scenario([job], "1x1"), a_policy(name, **options)).run()
    (launch,) = [order for step in drive.steps for order in step.decision.orders]
    assert launch.placement.role is Role.OPPORTUNISTIC  # type: ignore[union-attr]
