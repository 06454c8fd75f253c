"""The options of `trainmaster`, and the settings that its stages are made of."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.config.options import at_least_zero, choice, fraction, option
from trainmaster.mechanisms.fair_share.hierarchical_policy import QueueWeightOptions
from trainmaster.mechanisms.preemption_guards import PreemptionGuards
from trainmaster.mechanisms.type_choice import FIRST_END, TYPE_CHOICE_HELP, TYPE_CHOICES
from trainmaster.model.placement import Sharing
from trainmaster.model.units import MINUTE, NOMINAL, SECOND, to_ms
from trainmaster.policies.trainmaster.starvation_guard import StarvationGuard

SWITCH = choice("on", "off")
PREEMPTIONS_PER_RUN = 2
"""A run is protected from preemption for at least this many times the cost of a preemption.

Fewer than elsewhere, because a preemption has to pay besides (`charge_switches`).
"""


@dataclass(frozen=True, slots=True)
class TrainmasterOptions(QueueWeightOptions):
    min_run_s: float = option(
        60.0,
        at_least_zero,
        "a run is not preempted for this many seconds, except for deadlines and guaranteed runs",
    )
    learn: str = option(
        "on",
        SWITCH,
        "predict a job's service from jobs of its size and queue; with siblings off too, the order is "
        "least attained service",
    )
    history: str = option(
        "on", SWITCH, "predict it from earlier runs of the same user and program too; needs learn"
    )
    siblings: str = option(
        "on",
        SWITCH,
        "predict it from jobs of the same user, program, queue and size submitted just before and after it",
    )
    hysteresis: float = option(
        1.0, fraction, "a running job's Gittins cost is multiplied by this; 1: off"
    )
    cap: float = option(
        4.0,
        at_least_zero,
        "upper limit of a Gittins cost, in multiples of (attained service + 1 h on the job's GPUs); 0: off",
    )
    charge_switches: str = option(
        "on", SWITCH, "add the cost of a preemption to the Gittins cost of waiting jobs"
    )
    guard_ratio: float = option(
        5.0,
        at_least_zero,
        "guarantee a waiting job a run once its time under equal sharing exceeds this many times its run "
        "time; 0: off",
    )
    guard_slack_s: float = option(
        14400.0, at_least_zero, "seconds added to the limit of guard_ratio"
    )
    locality: str = option(
        "on",
        SWITCH,
        "gangs wait for GPUs close together while that pays; off: they take any free GPUs",
    )
    packing: str = option(
        "mps",
        choice("off", "time", "mps"),
        "how single-GPU jobs share a GPU while jobs wait: by MPS, by time slices, or not at all",
    )
    pack_kept: float = option(
        0.8, fraction, "fraction of its speed alone that each job on a shared GPU must keep"
    )
    grow: str = option("on", SWITCH, "elastic jobs grow into idle GPUs")
    type_choice: str = option(FIRST_END, choice(*TYPE_CHOICES), TYPE_CHOICE_HELP)
    half_life_s: float = option(
        86400.0,
        at_least_zero,
        "half-life of a queue's past usage, in seconds; 0: count current usage only",
    )
    deadlines: str = option(
        "on", SWITCH, "accept deadlines that can be met, and reserve capacity for them"
    )
    deadline_margin: float = option(
        0.1,
        at_least_zero,
        "minimum safety margin on predicted run times of deadline jobs, as a fraction",
    )


@dataclass(frozen=True, slots=True)
class LocalityTerms:
    """How much locality is worth."""

    ignored_ppm: int = 30_000
    """A loss up to this is accepted immediately."""
    patience_ppm: int = 2 * NOMINAL
    """A gang waits for near GPUs up to this many times the run time that distance would cost it."""
    avoids_gangs: bool = True
    """Whether small gangs keep away from each other's nodes."""
    look_ms: int = 5 * MINUTE
    """How often speeds of gangs are observed and spread gangs are consolidated."""
    rest_ms: int = 10 * MINUTE
    """A run is not migrated earlier than this after it started or moved."""


@dataclass(frozen=True, slots=True)
class PackingTerms:
    """When jobs may share a GPU, and when they are separated."""

    sharing: Sharing
    kept_ppm: int
    """Part of its speed alone that every job must keep."""
    most: int = 2
    """Jobs on one GPU."""
    gain_ppm: int = 300_000
    """Predicted increase of the sum of speeds that a joining job must bring."""
    least_ppm: int = 100_000
    """Measured increase that the last member must have brought."""
    trial_ms: int = 30 * SECOND
    """How long jobs run together before they are evaluated."""
    move_ms: int = 30 * SECOND
    """Assumed cost of a migration until some have been observed."""


@dataclass(frozen=True, slots=True)
class ResizingTerms:
    """When runs grow."""

    rest_ms: int = MINUTE
    """Minimum time between a start or resize of a run and its growth."""
    rest_switches: int = 10
    """The same in multiples of the cost of a preemption, so that growth lasts longer than it takes."""
    gain_ppm: int = 50_000
    """A run grows only if that makes it faster by more than this."""
    spare_part: int = 16
    """If preemptions take time, one GPU in this many is left idle for new jobs."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options in the units of the stages; None: the stage is left out."""

    learns_classes: bool
    learns_programs: bool
    learns_siblings: bool
    hysteresis_ppm: int
    """A running job's cost is multiplied by this."""
    cap_ppm: int
    """Limit of a cost, in multiples of attained service plus one hour; 0: no limit."""
    charges_switches: bool
    guard: StarvationGuard
    guards: PreemptionGuards
    deadline_margin_ppm: int | None
    """Added to the predictions of jobs with deadlines."""
    locality: LocalityTerms | None
    packing: PackingTerms | None
    resizing: ResizingTerms | None
    half_life_ms: int
    chooses_types: bool
    """Whether jobs get the type of device where they end first; else the fastest that is free."""

    @classmethod
    def of(cls, options: TrainmasterOptions) -> Settings:
        packing = None
        if options.packing != "off":
            kept_ppm = round(options.pack_kept * NOMINAL)
            packing = PackingTerms(Sharing(options.packing), kept_ppm)
        charges_switches = options.charge_switches == "on"
        margin_ppm = round(options.deadline_margin * NOMINAL)
        guard = StarvationGuard(round(options.guard_ratio * NOMINAL), to_ms(options.guard_slack_s))
        return cls(
            learns_classes=options.learn == "on",
            learns_programs=options.history == "on",
            learns_siblings=options.siblings == "on",
            hysteresis_ppm=round(options.hysteresis * NOMINAL),
            cap_ppm=round(options.cap * NOMINAL),
            charges_switches=charges_switches,
            guard=guard,
            guards=PreemptionGuards.of(options, PREEMPTIONS_PER_RUN * charges_switches),
            deadline_margin_ppm=margin_ppm if options.deadlines == "on" else None,
            locality=LocalityTerms() if options.locality == "on" else None,
            packing=packing,
            resizing=ResizingTerms() if options.grow == "on" else None,
            half_life_ms=to_ms(options.half_life_s),
            chooses_types=options.type_choice == FIRST_END,
        )
