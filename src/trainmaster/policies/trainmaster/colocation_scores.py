"""What colocation makes of one job: why it shares its GPU, or why it joins none of those in use."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.core.state import JobRecord
from trainmaster.model.packing_score import PackingScore, Verdict
from trainmaster.policies.trainmaster.colocation import Colocation
from trainmaster.policies.trainmaster.colocation_speeds import kind_of
from trainmaster.policies.trainmaster.options import PackingTerms
from trainmaster.policies.trainmaster.scheduling_pass import Pass
from trainmaster.policies.trainmaster.shared_gpus import can_share

NAMED = 3
"""GPUs that are named, those where joining would gain most."""


def packing_scores(p: Pass, record: JobRecord) -> tuple[PackingScore, ...]:
    """Of the jobs on its GPU; of a job that waits, those that it does not join."""
    terms = p.settings.packing
    if terms is None or not can_share(record) or p.has_guarantee(record):
        return ()
    stage = Colocation(p, terms)
    if record.placement is not None:
        return tuple(_of_group(stage, record))
    found = sorted(_not_joined(p, stage, terms, record), key=lambda score: -sum(score.rates))
    return tuple(found[:NAMED])


def _of_group(stage: Colocation, record: JobRecord) -> Iterator[PackingScore]:
    for gpu, group in stage.groups.items():
        others = [stage.shared.view.jobs[job] for job in group.jobs if job != record.id]
        if record.id in group.jobs and others:
            kinds = [kind_of(each) for each in (*others, record)]
            speeds = stage.rates.speeds_of(kinds, stage.shared.mode_of(gpu))
            verdict = Verdict.PACKED if group.is_evaluated else Verdict.ON_TRIAL
            names = tuple(each.id for each in others)
            yield PackingScore(names, verdict, *(speeds or ()))


def _not_joined(
    p: Pass, stage: Colocation, terms: PackingTerms, record: JobRecord
) -> Iterator[PackingScore]:
    space = stage.shared.draft.space
    allowed = space.kinds_for(record.demand)
    for gpu, tenants in stage.shared.all().items():
        is_in_queue = not p.has_queues or all(e.job.queue == record.job.queue for e in tenants)
        if len(tenants) >= terms.most or space.node_type[space.node_of[gpu]] not in allowed:
            continue
        if not is_in_queue or not all(can_share(each) for each in tenants):
            continue
        names = tuple(each.id for each in tenants)
        if not stage.shared.has_memory(gpu, record):
            yield PackingScore(names, Verdict.NO_MEMORY)
            continue
        kinds = [kind_of(each) for each in tenants]
        speeds = stage.rates.speeds_of((*kinds, kind_of(record)), stage.shared.mode_of(gpu))
        if speeds is None:
            yield PackingScore(names, Verdict.UNKNOWN)
            continue
        least = stage.sum_of(gpu, kinds) + terms.gain_ppm
        if min(speeds.rates) < terms.kept_ppm:
            yield PackingScore(names, Verdict.TOO_SLOW, *speeds, terms.kept_ppm)
        elif sum(speeds.rates) < least:
            yield PackingScore(names, Verdict.TOO_LITTLE, *speeds, least)
