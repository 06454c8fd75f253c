"""Why a job waits, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from shlex import quote

from trainmaster.model.placement import Sharing
from trainmaster.model.quota import Period
from trainmaster.model.reasons import HostShortage, Prerequisite, Reason, Why
from trainmaster.model.units import HOUR, WHOLE
from trainmaster.text.formatting import gpu_count, gpus, length, listing, plural, size, utc_time

NAMED = 4
"""Jobs that a sentence names; the others are counted."""


def names(ids: Sequence[str]) -> str:
    """`job 3`, `jobs 3 and 4`, `jobs 3, 4, 5, 6 and 12 more`."""
    if not ids:
        return "other jobs"
    if len(ids) == 1:
        return f"job {ids[0]}"
    more = [f"{len(ids) - NAMED} more"] if len(ids) > NAMED else []
    return f"jobs {listing([*ids[:NAMED], *more])}"


def _not_enough(reason: Reason) -> str:
    which = "the others" if reason.free else "them"
    held = f"; {names(reason.held_by)} hold{'s' if len(reason.held_by) == 1 else ''} {which}"
    elsewhere = ""
    if reason.reserved:
        elsewhere = f", {_are(reason.reserved)} reserved for {names(reason.reserved_for)}"
    if reason.drained:
        elsewhere += f", {_are(reason.drained)} on drained nodes"
    if reason.set_aside:
        elsewhere += f", {_are(reason.set_aside)} set aside"
    if reason.away:
        elsewhere += f", {_are(reason.away)} on nodes that are away"
    return (
        f"It needs {gpu_count(reason.need)} and {_are(reason.free)} free{elsewhere}"
        f"{held if reason.held_by else ''}{_owed(reason)}{_to_measure(reason)}"
    )


def _to_measure(reason: Reason) -> str:
    """What has to be measured before it may share a GPU."""
    if reason.is_unmeasured:
        return (
            "; it has a GPU for itself until its GPU use has been measured, and may share one then"
        )
    if not reason.unmeasured:
        return ""
    return f"; it may share a GPU with {_once_measured(reason.unmeasured)}"


def _once_measured(ids: Sequence[str]) -> str:
    which = "that job" if len(ids) == 1 else "those jobs"
    return f"{names(ids)} once the GPU use of {which} has been measured"


def _owed(reason: Reason) -> str:
    """What its queue is owed."""
    queue = reason.queue
    if queue is None:
        return ""
    has = gpus(queue.used) if queue.used else "none"
    return f"; its queue {queue.queue} is guaranteed {gpu_count(queue.guaranteed)} and holds {has}"


def _fragmented(reason: Reason) -> str:
    if reason.until_ms is not None:
        return (
            f"It needs {gpu_count(reason.need)}: {_are(reason.free)} free, but so far apart that it would be"
            " slowed down; it waits for a better place"
        )
    return (
        f"It needs {gpu_count(reason.need)} together: {_are(reason.free)} free, but at most"
        f" {gpus(reason.largest_block)} of them where it may use them together"
    )


OF_HOST = " of host memory"


def _host(reason: Reason) -> str:
    host = reason.host
    if host is None:
        return "It needs more host memory or CPUs than are free beside the free GPUs"
    needs = f"It needs {_host_amount(host, host.each)}"
    are = "is" if host.is_memory or host.free == WHOLE else "are"
    left = _host_amount(host, host.free).removesuffix(OF_HOST)
    free = f"{left} {are} free" if host.free > 0 else "none is free"
    if host.count > 1:
        needs += f" for each of its {host.count} GPUs"
        free = f"on a node with free GPUs at most {free}"
    users = [
        f"; job {each.job}, suspended in memory, keeps {_host_amount(host, each.amount)}"
        if each.is_frozen
        else f"; job {each.job} holds {_host_amount(host, each.amount)}"
        for each in host.used
    ]
    return f"{needs} and {free}{''.join(users)}"


def _host_amount(host: HostShortage, amount: int) -> str:
    """`14 GiB of host memory`, `2 CPUs`."""
    if host.is_memory:
        return f"{size(amount).replace('.0 ', ' ')}{OF_HOST}"
    return f"{gpus(amount)} CPU{'' if amount == WHOLE else 's'}"


def _gpu_memory(reason: Reason) -> str:
    part = reason.part
    if part is None:
        return "It needs more memory than is free on a GPU that it could share"
    return (
        f"It needs {size(part.needed)} of the memory of a GPU, and at most {size(max(0, part.free))} is"
        " free on one that has room for it"
    )


def _shared_otherwise(reason: Reason) -> str:
    part = reason.part
    if part is None:
        return "GPUs that have room for it are shared in another way than its own"
    return (
        f"It shares GPUs by {SHARED_BY[part.wanted]}, and those that have room for it are shared by"
        f" {SHARED_BY[part.shared]}"
    )


SHARED_BY = {Sharing.MPS: "MPS", Sharing.TIME: "time-slicing"}


def _not_measured(reason: Reason) -> str:
    return f"It can start beside {_once_measured(reason.held_by)}"


def _gpu_busy(reason: Reason) -> str:
    leave = "leaves" if len(reason.held_by) == 1 else "leave"
    return f"It runs on what others leave idle of their GPUs, and {names(reason.held_by)} {leave} too little"


def _stopped_on_node(reason: Reason) -> str:
    which, then = "", ""
    if reason.drained:
        which, then = ", which is drained,", ", after `trainmaster node undrain`"
    elif reason.set_aside:
        which, then = ", where a GPU is set aside,", ", after `trainmaster node unblock`"
    held = f"; {names(reason.held_by)} hold{'s' if len(reason.held_by) == 1 else ''} the GPUs there"
    stopped = f"Its processes are stopped in memory on {reason.detail}{which} and can go on only there{then}"
    return f"{stopped}{held if reason.held_by else ''}"


def _behind(reason: Reason) -> str:
    first = names(reason.held_by)
    return f"{first[0].upper()}{first[1:]} {'goes' if len(reason.held_by) == 1 else 'go'} first"


def _share(reason: Reason) -> str:
    queue = reason.queue
    needs = f"the job needs {gpu_count(reason.need)} more and {_are(reason.free)} free"
    if queue is None:
        return f"Its queue already holds its share; {needs}"
    by = f" ({names(reason.held_by)})" if reason.held_by and queue.used else ""
    holds = f"holds {gpu_count(queue.used) if queue.used else 'none'}{by}"
    if queue.maximum is not None and queue.used + reason.need > queue.maximum:
        most = f"Its queue {queue.queue} may hold {gpu_count(queue.maximum)} at most and {holds}"
        return f"{most}; the job needs {gpu_count(reason.need)} more"
    return f"Its queue {queue.queue} {holds}, and its share is {gpu_count(queue.share)}; {needs}"


def _gpu_limit(reason: Reason) -> str:
    quota = reason.quota
    if quota is None:
        return "Its user holds as many GPUs as one user may"
    where = f" in queue {quota.queue}" if quota.queue else ""
    if reason.need > quota.most:
        return (
            f"It needs {gpu_count(reason.need)}, and {quota.user} may use {gpu_count(quota.most)} at most"
            f"{where}, so it can never run: ask for fewer, or have the limit raised"
        )
    by = f" ({names(reason.held_by)})" if reason.held_by and quota.used else ""
    uses = f"{gpus(quota.used) if quota.used else 'none'} of {gpu_count(quota.most)}"
    needs = f"the job needs {gpu_count(reason.need)} more"
    return f"{quota.user} uses {uses} that one user may have{where}{by}; {needs}"


def _running_limit(reason: Reason) -> str:
    quota = reason.quota
    if quota is None:
        return "As many jobs of its user run as may"
    where = f" in queue {quota.queue}" if quota.queue else ""
    by = f" ({names(reason.held_by)})" if reason.held_by else ""
    return f"{quota.user} runs {quota.used:,} of {plural(quota.most, 'job')} that one user may run{where}{by}"


def gpu_hours(amount: int) -> str:
    """Thousandths of a GPU x ms: `12.5 GPU-hours`."""
    hours = amount / (WHOLE * HOUR)
    return f"{hours:,.4g} GPU-hour{'' if hours == 1 else 's'}"


def _budget(reason: Reason) -> str:
    quota, until = reason.quota, reason.until_ms
    if quota is None:
        return "Its budget of GPU-hours is used up"
    whose = f"queue {quota.queue}" if quota.queue else quota.user
    per = "" if quota.period in (None, Period.TOTAL) else f" per {quota.period.value}"
    used = "" if quota.used <= quota.most else f" ({gpu_hours(quota.used)} were used)"
    renewed = "it is not renewed" if until is None else f"it is renewed on {utc_time(until)}"
    return f"The budget of {whose}, {gpu_hours(quota.most)}{per}, is used up{used}; {renewed}"


def _reserved(reason: Reason) -> str:
    return f"The GPUs that it could use are held for {names(reason.held_by)}"


def _releasing(reason: Reason) -> str:
    return f"Its GPUs are reserved for it; {names(reason.held_by)} must release them first"


def _deadline(_reason: Reason) -> str:
    return "Its deadline leaves enough time, so other jobs go first"


def _never(reason: Reason) -> str:
    needs, queue = f"It needs {gpu_count(reason.need)}", reason.queue
    if reason.total:
        has = f"this cluster has only {gpus(reason.total)} that it may use"
        return f"{needs} and {has}, so it cannot run here"
    if queue is None or queue.maximum is None:
        return f"{needs}, which this cluster can never give it: ask for fewer, or for another type"
    return (
        f"{needs} and its queue {queue.queue} may hold {gpu_count(queue.maximum)} at most, so it can"
        " never run: ask for fewer, or raise the queue's maximum"
    )


def _next_pass(_reason: Reason) -> str:
    return "There is room for it: it waits for the next scheduling pass"


def _faster_type(reason: Reason) -> str:
    when = f", expected to be free at {utc_time(reason.until_ms)}" if reason.until_ms else ""
    return (
        f"It waits for {reason.detail}{when}: it ends sooner there than on the slower devices that are"
        " free"
    )


def _policy_failed(reason: Reason) -> str:
    return f"The scheduling policy fails, so nothing is started: {reason.detail}"


MUST_HAVE = {"ok": "succeeded", "any": "ended", "fail": "failed"}
"""How a job has to end for those that depend on it."""


def prerequisite_words(each: Prerequisite) -> str:
    """`job 7 (prep)`, `array 60 (sweep: 100 jobs, 37 left)`."""
    named = f"{each.name}: " if each.name else ""
    if each.total:
        return f"array {each.job} ({named}{plural(each.total, 'job')}, {each.left:,} left)"
    return f"job {each.job}{f' ({each.name})' if each.name else ''}"


def _dependency(reason: Reason) -> str:
    parts = []
    for when, ends in MUST_HAVE.items():
        waited = [prerequisite_words(each) for each in reason.after if each.when == when]
        if waited:
            parts.append(f"{listing(waited)} {'has' if len(waited) == 1 else 'have'} {ends}")
    return f"It starts after {listing(parts) if parts else 'other jobs have ended'}"


def _array_limit(reason: Reason) -> str:
    running = (
        f", and {names(reason.held_by)} {'is' if len(reason.held_by) == 1 else 'are'} before it"
    )
    most = f"Its array runs at most {plural(reason.limit, 'job')} at once"
    return f"{most}{running if reason.held_by else ''}"


def _prerun(reason: Reason) -> str:
    ids = reason.held_by
    whose = names(ids) if ids else "another job"
    return (
        f"It starts when the pre-run of {whose} is over, which {'have' if len(ids) > 1 else 'has'} the"
        " same program"
    )


def _held(reason: Reason) -> str:
    who = f"Held by {reason.by}" if reason.by else "Held by its user"
    return f"{who}: `trainmaster resume` lets it start"


def _suspended_by_user(reason: Reason) -> str:
    who = reason.by or "a user"
    if reason.drained:
        return (
            f"Suspended by {who}, in memory on {reason.detail}, which is drained: it continues only"
            " there, after `trainmaster node undrain` and `trainmaster resume`"
        )
    return f"Suspended by {who}: `trainmaster resume` lets it continue"


def _suspended_idle(_reason: Reason) -> str:
    return "Suspended because it was idle: `trainmaster resume`, or `shell` for a session, lets it continue"


def _over_gpu_memory(_reason: Reason) -> str:
    return "It used more GPU memory than it had booked, and starts again with more"


def _retry_delay(reason: Reason) -> str:
    if reason.retry is not None:
        how = "lost" if reason.retry.was_lost else "failed"
        counted = f"{how} {plural(reason.retry.attempt - 1, 'time')}"
        return f"attempt {reason.retry.attempt} of {reason.retry.attempts}, {counted}"
    return "Its last run did not succeed, and it is tried again after a pause"


def _input_blocked(reason: Reason) -> str:
    since = "" if reason.since_ms is None else f" since {utc_time(reason.since_ms)}"
    return (
        f"Its input {reason.detail} is set aside{since}, because {names(reason.failed)} failed on it:"
        " it is used again when it has changed, or after"
        f" `trainmaster inputs unblock {quote(reason.detail)}`"
    )


def _avoids(reason: Reason) -> str:
    return f"It failed on {reason.detail}, which it could have again, and waits for other devices"


def _kept_free(reason: Reason) -> str:
    held = reason.kept_free
    if held is None:
        return "Devices that it could use are kept free"
    why = f" ({held.reason})" if held.reason else ""
    what = "in maintenance"
    if not held.is_maintenance:
        what = f"reserved for {reservation_for(held.user, held.queue)}"
    end = utc_time(held.end_ms)
    if reason.since_ms is None:
        return f"{reason.detail}: {what} until {end}{why}"
    return f"{reason.detail}: {what} from {utc_time(held.begin_ms)} to {end}{why}, when it might still run"


def reservation_for(user: str, queue: str) -> str:
    """Whose jobs it is for."""
    if user and queue:
        return f"{user} in queue {queue}"
    return user or f"queue {queue}"


SENTENCES = {
    Why.NOT_ENOUGH_FREE: _not_enough,
    Why.FRAGMENTED: _fragmented,
    Why.HOST_TAKEN: _host,
    Why.GPU_MEMORY_TAKEN: _gpu_memory,
    Why.SHARED_OTHERWISE: _shared_otherwise,
    Why.NOT_MEASURED: _not_measured,
    Why.GPU_BUSY: _gpu_busy,
    Why.STOPPED_ON_NODE: _stopped_on_node,
    Why.BEHIND_OTHERS: _behind,
    Why.SHARE_USED_UP: _share,
    Why.USER_GPU_LIMIT: _gpu_limit,
    Why.USER_RUNNING_LIMIT: _running_limit,
    Why.BUDGET_USED_UP: _budget,
    Why.RESERVED: _reserved,
    Why.WAITING_FOR_RELEASE: _releasing,
    Why.DEADLINE_LEAVES_TIME: _deadline,
    Why.NEVER_FITS: _never,
    Why.DEPENDENCY: _dependency,
    Why.ARRAY_LIMIT: _array_limit,
    Why.HELD: _held,
    Why.SUSPENDED_BY_USER: _suspended_by_user,
    Why.SUSPENDED_IDLE: _suspended_idle,
    Why.OVER_GPU_MEMORY: _over_gpu_memory,
    Why.PRERUN: _prerun,
    Why.RETRY_DELAY: _retry_delay,
    Why.INPUT_BLOCKED: _input_blocked,
    Why.AVOIDS_DEVICES: _avoids,
    Why.MAINTENANCE: _kept_free,
    Why.RESERVATION: _kept_free,
    Why.FASTER_TYPE: _faster_type,
    Why.NEXT_PASS: _next_pass,
    Why.POLICY_FAILED: _policy_failed,
}


SAYS_UNTIL = (
    *(Why.NEVER_FITS, Why.BUDGET_USED_UP, Why.MAINTENANCE, Why.RESERVATION),
    Why.FASTER_TYPE,
)
"""Reasons that say themselves until when they hold, or hold for good."""


def _are(thousandths: int) -> str:
    if not thousandths:
        return "none are"
    return f"{gpus(thousandths)} {'is' if thousandths <= WHOLE else 'are'}"


def reason_sentence(reason: Reason, now: int) -> str:
    """Why a job waits, as one sentence."""
    until, said = reason.until_ms, _said(reason)
    if reason.retry is not None and until is not None:
        return f"Retry in {length(max(0, until - now))} ({said})."
    kept = _kept(reason, now)
    if until is None or until <= now or reason.why in SAYS_UNTIL:
        return f"{said}{kept}."
    return f"{said}{kept} (at most {length(until - now)} more)."


def _kept(reason: Reason, now: int) -> str:
    """The rule that keeps a job in the way on its GPUs, and until when."""
    if reason.never_preempts and reason.held_by:
        return f"; the policy {reason.never_preempts} never preempts a running job"
    if not reason.protections:
        return ""
    first = reason.protections[0]
    if first.unsaved_ms:
        lost = length(first.unsaved_ms)
        return f"; job {first.job} could only be ended, and {lost} of its work would be lost"
    if first.until_ms is None:
        return f"; job {first.job} may not be suspended ({first.rule})"
    soonest = max(0, first.until_ms - now)
    return f"; job {first.job} may be suspended in {length(soonest)} at the earliest ({first.rule})"


@lru_cache(maxsize=1024)
def _said(reason: Reason) -> str:
    """Cached: in a long list many jobs wait for the same reason."""
    return SENTENCES[reason.why](reason)
