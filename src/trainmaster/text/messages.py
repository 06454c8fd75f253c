"""What happened to a job and what is expected of it, in one sentence each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainmaster.model.stop_reasons import EndCode
from trainmaster.model.units import DAY, SECOND
from trainmaster.text.formatting import gpus, length, listing, plural, size, utc_time, when
from trainmaster.text.reasons import names


def forecast_sentence(start_ms: int | None, basis: str, now: int) -> str:
    """When a job is expected to start, and what the forecast assumes."""
    basis = basis.rstrip(".")
    if start_ms is None:
        return f"No start can be predicted: {basis or 'nothing is known of the other jobs'}."
    because = f" ({basis})" if basis else ""
    return f"It is expected to start {when(start_ms, now)}{because}."


def freezes_sentence(
    freezes: int, freezing_ms: int, how: str, host_bytes: int | None, gpu_bytes: int | None
) -> str:
    """How often a job was suspended in memory, what that cost, and what it keeps while it is."""
    by = FREEZERS.get(how, "")
    last = f", the last time {by}" if by else ""
    cost = f"; freezing and thawing took {length(freezing_ms)} in all" if freezing_ms else ""
    kept = [
        f"{size(count)} {where}"
        for count, where in ((host_bytes, "of host memory"), (gpu_bytes, "on its GPUs"))
        if count
    ]
    keeps = f". Suspended, it keeps {listing(kept)}" if kept else ""
    return f"It was suspended in memory {plural(freezes, 'time')}{last}{cost}{keeps}."


def story_sentence(what: str, detail: Mapping[str, object]) -> str:
    """What happened to a job, with the details that matter to people."""
    said = detail.get("sentence") or detail.get("why")
    opening, worded_keys = OPENINGS[what](detail) if what in OPENINGS else (what, ())
    worded = (
        DETAILS.get(key, _named)(key, value)
        for key, value in detail.items()
        if key not in ("sentence", "why", "tail", "cost", *worded_keys)
        and not (key == "reason" and detail.get("title"))
        and value not in (None, "", [], {})
    )
    rest = [each for each in worded if each]
    start = f"{opening[:1].upper()}{opening[1:]}"
    listed = f" ({', '.join(rest)})" if rest else ""
    return f"{start}{listed}: {said}" if said else f"{start}{listed}"


def _named(key: str, value: object) -> str:
    return f"{key.removesuffix('_ms').replace('_', ' ')} {_detail(key, value)}"


def _seconds(value: object) -> int:
    return round(value * SECOND) if isinstance(value, int | float) else 0


def _bytes(value: object) -> str:
    return size(value) if isinstance(value, int) else str(value)


def _work_lost(_key: str, value: object) -> str:
    lost = _seconds(value)
    return f"{length(lost)} of work lost" if lost >= NOTICEABLE_MS else ""


def _processes(_key: str, value: object) -> str:
    many = isinstance(value, list) and len(value) > 1
    return f"process{'es' if many else ''} {_detail('', value)}"


def _lowered(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


NOTICEABLE_MS = 1 * SECOND
"""Less work than that is not said to be lost."""
Detail = Mapping[str, object]
Opening = tuple[str, tuple[str, ...]]
"""How a sentence begins, and which details it words by that."""


def _submitted(detail: Detail) -> Opening:
    holds = detail.get("held_for")
    waits = [HELD_FOR.get(str(hold), "") for hold in holds] if isinstance(holds, list) else []
    name = f" as {detail['name']}" if detail.get("name") else ""
    said = [each for each in waits if each]
    passed_as = detail.get("passed_as")
    if passed_as:
        said.append(f"without a pre-run, since job {passed_as} has passed it")
    worded_keys = ("name", "held_for", "passed_as")
    return f"submitted{name}{f', {listing(said)}' if said else ''}", worded_keys


HELD_FOR = {
    "owner": "to be held until it is resumed",
    "dependency": "to start after other jobs",
    "array": "to start when its array has a free place",
    "input": "to start when its input, which is set aside, is back",
    "prerun": "to start when another job has pre-run the same program",
}


def _held(detail: Detail) -> Opening:
    verb = "suspended" if detail.get("has_run", True) else "held"
    worded_keys = ("by", "has_run", "idle", "memory", "input")
    if detail.get("input"):
        return f"held because its input {detail['input']} is set aside", worded_keys
    if detail.get("memory"):
        return f"stopped because it {detail['memory']}", worded_keys
    if detail.get("idle"):
        return f"{verb} because it was idle", worded_keys
    return f"{verb} by {detail.get('by') or 'a user'}", worded_keys


def _released(detail: Detail) -> Opening:
    worded_keys = ("by", "hold", "input", "because", "failed_as")
    if detail.get("input"):
        return f"free to start: its input {detail['input']} is used again, because" + (
            f" {detail['because']}"
        ), worded_keys
    if detail.get("hold") == "owner":
        return f"resumed by {detail.get('by') or 'a user'}", worded_keys
    if detail.get("failed_as"):
        return (
            f"free to start: the same program has just failed its pre-run as job {detail['failed_as']}",
            worded_keys,
        )
    return FREE_TO_START.get(str(detail.get("hold")), "free to start"), worded_keys


FREE_TO_START = {
    "dependency": "free to start: what it depended on has ended",
    "array": "free to start: its array has a free place",
    "memory": "free to start again",
    "input": "free to start: its input is used again",
    "prerun": "free to start: it no longer waits for the pre-run of another job",
}


def _withdrawn(detail: Detail) -> Opening:
    how = "timed out" if detail.get("end") == EndCode.TIME_LIMIT else "cancelled"
    return f"{how} by {detail['by']}" if detail.get("by") else how, ("by", "end")


def _suspension_ordered(detail: Detail) -> Opening:
    worded_keys = ("for", "to", "frozen", "attempt", "because")
    if detail.get("frozen"):
        return "ending its processes, which were stopped in memory", worded_keys
    if detail.get("to"):
        because = f", because it {detail['because']}" if detail.get("because") else ""
        return f"stopping to move to {_detail('', detail['to'])}{because}", worded_keys
    if detail.get("because"):
        return f"suspended because it {detail['because']}", worded_keys
    room_for = detail.get("for")
    if not isinstance(room_for, list):
        return "suspending", worded_keys
    return f"suspended to make room for {names([str(each) for each in room_for])}", worded_keys


SUSPENDED_HOW = {
    "in memory": "stopped in memory",
    "by a checkpoint": "saved and stopped",
    "by ending it": "stopped without saving",
}


FREEZERS = {
    "driver": "by the CUDA driver",
    "cooperative": "by its own program",
}
"""Who freed the GPU memory of a run that is suspended in memory."""


def _suspended(detail: Detail) -> Opening:
    opening = SUSPENDED_HOW.get(str(detail.get("how")), "suspended")
    by = FREEZERS.get(str(detail.get("freezer")), "")
    return f"{opening} {by}".rstrip(), ("how", "freezer", "attempt")


def _not_frozen(detail: Detail) -> Opening:
    what = "goes on" if detail.get("goes_on") else "is told to save and end"
    again = ", and this is not tried again while it runs" if detail.get("is_final") else ""
    return (
        f"could not be stopped in memory, so it {what}{again}",
        ("goes_on", "is_final", "attempt"),
    )


def _paced(detail: Detail) -> Opening:
    worded_keys = ("pace", "is_heeded", "attempt")
    pace = detail.get("pace")
    if not detail.get("is_heeded", True):
        return "to be held back, but still running at full speed", worded_keys
    if pace == 0:
        return "held back: it makes no further step for now", worded_keys
    if pace == 100:
        return "not held back any more", worded_keys
    return f"held back to {pace} % of its speed", worded_keys


def _hung(detail: Detail) -> Opening:
    ends = ", so it is ended to be started again" if detail.get("restarts") else ""
    stays = (
        ", but is not ended, because it would not be tried again" if detail.get("is_last") else ""
    )
    return f"hangs{ends}{stays}", ("stacks", "restarts", "is_last", "attempt")


def _straggler(detail: Detail) -> Opening:
    keys = ("rank", "percent", "own_ms", "peers_ms")
    rank, percent, own_ms, peers_ms = (detail.get(key) for key in keys)
    if not isinstance(rank, int) or not isinstance(percent, int):
        return "slower in one of its ranks than in the others", (*keys, "attempt")
    known = (each if isinstance(each, int) else None for each in (own_ms, peers_ms))
    return straggler_sentence(rank, "", percent, *known).rstrip("."), (*keys, "attempt")


IDLE_ACTIONS = {"suspend": "it is suspended, if that loses nothing", "end": "it is ended"}


def _idle(detail: Detail) -> Opening:
    """`Its GPUs have been idle for 15 min: after 30 min it is suspended`."""
    said = f"its GPUs have been idle for {length(_seconds(detail.get('idle_s')))}"
    action = IDLE_ACTIONS.get(str(detail.get("action")))
    if action:
        said += f": after {length(_seconds(detail.get('limit_s')))} {action}"
    return said, ("attempt", "idle_s", "limit_s", "action")


def straggler_sentence(
    rank: int, device: str, percent: int, own_ms: int | None = None, peers_ms: int | None = None
) -> str:
    """That a rank is slower than the others of its gang; with `own_ms`, that they wait for it."""
    who = f"rank {rank} on {device}" if device else f"rank {rank}"
    times = f"{percent / 100:.1f} times as long"
    if own_ms is None or peers_ms is None:
        return f"R{who[1:]} takes {times} for a step as its peers."
    return (
        f"Its other ranks wait for {who}, which takes {own_ms} ms before the backward pass of each step "
        f"(loading data, computing) where they take {peers_ms} ms: its steps take {times} as without that."
    )


def pace_sentence(percent: int, why: str, *, is_heeded: bool = True) -> str:
    """How far a job is held back now, and why."""
    opening, _ = _paced({"pace": percent, "is_heeded": is_heeded})
    return f"It is {opening}. {why}".rstrip()


def _on_devices(verb: str, *worded_keys: str) -> Callable[[Detail], Opening]:
    def opening(detail: Detail) -> Opening:
        on = detail.get("on")
        return f"{verb} on {_detail('', on)}" if on else verb, ("on", *worded_keys)

    return opening


def _launching(detail: Detail) -> Opening:
    verb = "trying its first steps on one device (pre-run)" if detail.get("prerun") else "starting"
    opening, worded_keys = _on_devices(verb)(detail)
    return opening, (*worded_keys, "prerun")


def _prerun_passed(detail: Detail) -> Opening:
    worded_keys = ("prerun", "reason", "title", "attempt", "stepless", "finished", "wants")
    reason = detail.get("title") or detail.get("reason")
    if detail.get("stepless"):
        return (
            "its pre-run was seen to make no step in its time: it waits for all its devices all the same",
            worded_keys,
        )
    if not reason and detail.get("finished"):
        return (
            "its program ended within its pre-run: it runs again, on all its devices",
            worded_keys,
        )
    if not reason:
        return "its pre-run passed: it waits for all its devices", worded_keys
    return (
        f"its pre-run failed ({reason}), {perhaps_for_want(str(detail.get('wants') or ''))}:"
        " it is tried on all its devices",
        worded_keys,
    )


SAYS_NO_PREFLIGHT = (
    "a program that needs several devices to begin says `preflight: false`, or `run --no-preflight`"
)
"""What may help where a pre-run failed for a reason that nobody knows."""


def perhaps_for_want(wants: str) -> str:
    """What a pre-run may have failed for want of: `devices`, `checkpoints`."""
    what = "its checkpoints" if wants == "checkpoints" else "devices"
    return f"perhaps for want of {what}"


def _prerun_waived(detail: Detail) -> Opening:
    passed_as = detail.get("passed_as")
    by = (
        f": job {passed_as} has passed it"
        if passed_as
        else ", as that of the same program was unsure"
    )
    return f"needs no pre-run any more{by}", ("passed_as",)


def _failed(detail: Detail) -> Opening:
    if not detail.get("prerun"):
        return "failed", ()
    hint = f"; {SAYS_NO_PREFLIGHT}" if detail.get("wants") else ""
    return f"failed in its pre-run on one device{hint}", ("prerun", "wants")


def _lost(detail: Detail) -> Opening:
    """`Lost (1 min of work lost, tried again in 1 s): The node n1 is gone.` Nobody is to blame for that."""
    is_said = detail.get("title") == "lost"
    return "lost", ("blame", *(("title",) if is_said else ()))


def _sharing(detail: Detail) -> Opening:
    worded_keys = ("on", "beside", "shared_by", "attempt")
    on, beside = _detail("", detail.get("on", "")), detail.get("beside")
    by = f" by {detail['shared_by']}" if detail.get("shared_by") else ""
    if not isinstance(beside, list):
        return f"alone on {on}, without a restart", worded_keys
    return (
        f"sharing {on} with {names([str(each) for each in beside])}{by}, without a restart",
        worded_keys,
    )


def _adopted(detail: Detail) -> Opening:
    verb = "found stopped in memory" if detail.get("frozen") else "found running"
    opening, worded_keys = _on_devices(verb, "attempt")(detail)
    return opening, (*worded_keys, "frozen")


def _resizing(detail: Detail) -> Opening:
    """`Resizing from 4 devices to 2 for job 3 (train), by the policy max-min, on vm:0 vm:1`."""
    before, after, room_for = detail.get("from"), detail.get("to"), detail.get("for")
    if not isinstance(before, int):
        return _on_devices("resizing to run")(detail)
    said = f"resizing from {plural(before, 'device')} to {after}"
    if isinstance(room_for, list) and room_for:
        said += f" for {names([str(each) for each in room_for])}"
    said += f", by the policy {detail.get('by')}, on {_detail('', detail.get('on', ''))}"
    return said, ("from", "to", "for", "by", "on")


def elastic_sentence(low: int, high: int, has: int, policy: str, is_resizing: bool) -> str:
    """`It may have 1 to 4 GPUs and has 4 now: the policy max-min decides how many.`"""
    now = f" and has {gpus(has)} now" if has else ""
    now = f" and is being resized to {gpus(has)}" if is_resizing else now
    return (
        f"It may have {gpus(low)} to {gpus(high)} GPUs{now}: the policy {policy} decides how many."
    )


RESIZE_PARTS: Mapping[str, str] = {
    "order_ms": "the order on its way",
    "warm_up_ms": "new ranks warming up beside the others",
    "stop_ms": "saving and stopping",
    "start_ms": "starting",
    "boundary_ms": "to the end of a step",
    "regroup_ms": "regrouping",
    "broadcast_ms": "handing on the state",
    "first_step_ms": "the first step",
}
"""What a resize consists of, in its order; ranks that leave do so beside it."""


def _resized(detail: Detail) -> Opening:
    """`Resized in place, paused for 0.3 s (processes 3, 4)`."""
    if not detail.get("in_place"):
        return "resized, from its checkpoint", ("attempt",)
    paused = length(_seconds(detail.get("paused_s")))
    return f"resized in place, paused for {paused}", ("attempt", "in_place", "paused_s")


def _resize_timed(detail: Detail) -> Opening:
    """`First step at the new size after 2.3 s: new ranks warming up beside the others 1.8 s, ...`."""
    parts = [(words, _seconds(detail.get(key))) for key, words in RESIZE_PARTS.items()]
    told = [f"{words} {length(ms)}" for words, ms in parts if ms >= BRIEF_PART_MS]
    listed = f": {', '.join(told)}" if told else ""
    whole = length(sum(ms for _, ms in parts))
    return f"first step at the new size after {whole}{listed}", (
        *RESIZE_PARTS,
        "leave_ms",
        "attempt",
    )


BRIEF_PART_MS = 50
"""Shorter parts of a resize are not told."""


def _replica_lost(detail: Detail) -> Opening:
    """`Rank 1 was lost, the other 3 go on (exit code 9)`."""
    left = detail.get("left")
    others = "the other one goes on" if left == 1 else f"the other {left} go on"
    return f"rank {detail.get('rank')} was lost, {others}", ("rank", "left", "attempt")


def _size_limited(detail: Detail) -> Opening:
    """`Can use at most 4 devices: its global batch has no samples for more ranks`."""
    most = detail.get("most_gpus")
    devices = plural(most if isinstance(most, int) else 0, "device")
    words = f"can use at most {devices}: its global batch has no samples for more ranks"
    return words, ("most_gpus", "attempt")


OPENINGS: Mapping[str, Callable[[Detail], Opening]] = {
    "resized": _resized,
    "resize timed": _resize_timed,
    "replica lost": _replica_lost,
    "size limited": _size_limited,
    "submitted": _submitted,
    "held": _held,
    "released": _released,
    "withdrawn": _withdrawn,
    "adopted": _adopted,
    "launch ordered": _launching,
    "pre-run passed": _prerun_passed,
    "pre-run waived": _prerun_waived,
    "failed": _failed,
    "lost": _lost,
    "freeze ordered": _suspension_ordered,
    "halt ordered": _suspension_ordered,
    "suspended": _suspended,
    "not frozen": _not_frozen,
    "paced": _paced,
    "hung": _hung,
    "straggler": _straggler,
    "idle": _idle,
    "went on": lambda _: ("going on: it did not hang", ("attempt",)),
    "thaw ordered": _on_devices("resuming", "attempt"),
    "resumed": lambda _: ("running again", ("attempt",)),
    "sharing changed": _sharing,
    "resize ordered": _resizing,
    "end ordered": lambda _: ("stopping", ("attempt",)),
}
"""By what happened, as stores have it: in the words of people."""

DETAILS: Mapping[str, Callable[[str, object], str]] = {
    "changed": lambda _, value: f"changed since submission: {_detail('', value)}",
    "beside": lambda _, value: f"beside {names(value) if isinstance(value, list) else value}",
    "at_step": lambda _, value: f"at step {value}",
    "blame": lambda _, value: f"blame: {value}" if value != "unknown" else "",
    "code": lambda _, value: f"exit code {value}",
    "reason": lambda _, value: str(value).replace("-", " ") if value != "unknown" else "",
    "ended_ms": lambda key, value: f"ended at {_detail(key, value)}, noticed later",
    "saved_ms": lambda key, value: f"at {_detail(key, value)}, noticed later",
    "gpu_bytes": lambda _, value: f"{_bytes(value)} left on its GPUs",
    "host_bytes": lambda _, value: f"{_bytes(value)} moved to host memory",
    "how": lambda _, value: str(value),
    "killed": lambda _, value: f"killed, as {value}",
    "lost_s": _work_lost,
    "name": lambda _, value: f"as {value}",
    "not_brought": lambda _, value: f"not all it wrote was brought from its nodes: {value}",
    "pids": _processes,
    "retry": lambda _, value: _lowered(str(value).rstrip(".")),
    "shared_by": lambda _, value: f"sharing its GPU by {value}",
    "retry_in_s": lambda _, value: f"tried again in {length(_seconds(value))}",
    "title": lambda _, value: str(value),
    "took_s": lambda _, value: f"took {length(_seconds(value))}",
}
"""Details that need a wording of their own."""


def _detail(key: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and key.endswith("_ms"):
        return utc_time(value) if value > 10 * 365 * DAY else length(value)
    if isinstance(value, list):
        return " ".join(str(each) for each in value)
    if isinstance(value, Mapping):
        return " ".join(f"{name}={each}" for name, each in value.items())
    return str(value)
