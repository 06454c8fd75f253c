"""Every part of `trainmaster` as an option, and what the options mean to the parts."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.config.options import at_least_zero, choice, fraction, option
from trainmaster.mechanisms.fair_share.hierarchical_policy import DividingOptions
from trainmaster.mechanisms.starvation import Guards
from trainmaster.model.placement import Sharing
from trainmaster.model.units import NOMINAL, to_ms
from trainmaster.policies.trainmaster.cluster_pass import LineTerms
from trainmaster.policies.trainmaster.colocation_state import Terms as PackingTerms
from trainmaster.policies.trainmaster.delay_scheduling import Terms as NearnessTerms
from trainmaster.policies.trainmaster.ranking import Terms
from trainmaster.policies.trainmaster.resizing import Terms as BreathingTerms
from trainmaster.policies.trainmaster.starvation_guard import Guard

SWITCH = choice("on", "off")


@dataclass(frozen=True, slots=True)
class TrainmasterOptions(DividingOptions):
    min_run_s: float = option(
        60.0, at_least_zero, "no run is preempted before it has run this long"
    )
    learn: str = option(
        "on", SWITCH, "foresee jobs by their class; off, and siblings too: least attained service"
    )
    history: str = option(
        "on", SWITCH, "foresee them by earlier runs of their user's program; only with learn"
    )
    siblings: str = option("on", SWITCH, "foresee them by those submitted just before and after")
    keep: float = option(0.65, fraction, "part of its rank that counts for a job that runs; 1: all")
    cap: float = option(
        4.0, at_least_zero, "a rank counts for at most this many times what it has had; 0: no cap"
    )
    charge_switches: str = option("on", SWITCH, "count what a change of hands costs in the order")
    guard_ratio: float = option(
        10.0, at_least_zero, "who waits beyond this many times its fair time is owed a run; 0: off"
    )
    guard_slack_s: float = option(86400.0, at_least_zero, "... and this much more")
    locality: str = option(
        "on", SWITCH, "let gangs wait for near GPUs while that pays; off: take what is free"
    )
    packing: str = option(
        "mps", choice("off", "time", "mps"), "how single-GPU jobs may share a GPU while others wait"
    )
    pack_kept: float = option(0.8, fraction, "part of its speed that a job on a shared GPU keeps")
    shrink: str = option(
        "off", SWITCH, "elastic jobs give way to who waits, below their own number"
    )
    grow: str = option("on", SWITCH, "elastic jobs grow into idle GPUs")
    half_life_s: float = option(
        86400.0, at_least_zero, "how fast past use of GPUs by a queue is forgotten; 0: no memory"
    )
    deadlines: str = option("on", SWITCH, "accept deadlines that can be kept, and keep them")
    deadline_margin: float = option(
        0.1, at_least_zero, "part added to predicted run times of jobs with deadlines, at least"
    )

    def terms(self) -> Terms:
        """How ranks are made."""
        is_on = self.deadlines == "on"
        return Terms(
            asks_classes=self.learn == "on",
            asks_programs=self.history == "on",
            asks_siblings=self.siblings == "on",
            kept_ppm=round(self.keep * NOMINAL),
            cap_ppm=round(self.cap * NOMINAL),
            charges_switches=self.charge_switches == "on",
            guard=Guard(round(self.guard_ratio * NOMINAL), to_ms(self.guard_slack_s)),
            guards=Guards.of(self),
            margin_ppm=round(self.deadline_margin * NOMINAL) if is_on else None,
        )

    def line_terms(self) -> LineTerms:
        """How jobs are placed."""
        packing = breathing = None
        if self.packing != "off":
            kept_ppm = round(self.pack_kept * NOMINAL)
            packing = PackingTerms(sharing=Sharing(self.packing), kept_ppm=kept_ppm)
        shrinks, grows = self.shrink == "on", self.grow == "on"
        if shrinks or grows:
            breathing = BreathingTerms(shrinks=shrinks, grows=grows)
        return LineTerms(
            nearness=NearnessTerms() if self.locality == "on" else None,
            packing=packing,
            breathing=breathing,
        )
