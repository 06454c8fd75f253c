"""What the directives of a script ask for: a table of options, each with the function that reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from trainmaster.config.slurm import amounts
from trainmaster.config.slurm.amounts import GpuRequest
from trainmaster.config.slurm.options import Said
from trainmaster.config.slurm.script import Directive, Remark

GPU_WORD = re.compile(
    r"(?:gpu[_-]?)?(p100|v100|t4|a10|a16|a30|a40|a100|a800|h100|h200|h800|gh200|b100|b200|gb200|l4|l40s?"
    r"|rtx\w+|titan\w*|mi\d+\w*)(?:[_-]?(?:sxm\d?|pcie|\d+gb?|ddr\w*))*",
    re.IGNORECASE,
)
"""A constraint that names a type of GPU."""
WHEN = {"afterok": "ok", "afterany": "any", "afternotok": "fail"}
LONGEST_GRACE_S = 300
OCCASIONS: dict[str, tuple[str, ...]] = {
    "NONE": (),
    "BEGIN": ("started",),
    "END": ("ended",),
    "FAIL": ("failed",),
    "REQUEUE": ("retried",),
    "ALL": ("started", "retried", "failed", "ended"),
}
"""What mails are sent of, in our words."""
_KNOWN_OCCASIONS = "started, suspended, hung, retried, failed, ended"


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What the script asks of Slurm; None: it does not say."""

    name: str | None = None
    nodes: tuple[int, int] | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    tasks_per_gpu: int | None = None
    cpus_per_task: int | None = None
    cpus_per_gpu: int | None = None
    gpus: GpuRequest | None = None
    gpus_per_node: GpuRequest | None = None
    gpus_per_task: GpuRequest | None = None
    gpu_type: str = ""
    """From a constraint."""
    percent: int | None = None
    """Of a GPU, under MPS."""
    memory: int | None = None
    """Of a node, in bytes."""
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None
    seconds: int | None = None
    signal_s: int | None = None
    array: tuple[tuple[int, ...], int | None] | None = None
    depends_on: tuple[str, ...] = ()
    partitions: tuple[tuple[str, str, int], ...] = ()
    """Option, value and line of what may become a queue."""
    output: str | None = None
    error: str | None = None
    output_line: int = 0
    error_line: int = 0
    appends: bool = True
    input: str | None = None
    workdir: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    priority: int | None = None
    retries: int | None = None
    is_held: bool = False
    comment: str | None = None
    mail_to: tuple[str, ...] = ()
    mail_on: tuple[str, ...] = ()
    mail_line: int = 0
    image: str | None = None
    container_options: tuple[Said, ...] = ()
    not_understood: tuple[Remark, ...] = ()
    changed: tuple[Remark, ...] = ()

    def misses(self, at: Directive, why: str) -> BatchRequest:
        remark = Remark(at.line, at.said.text, why)
        return replace(self, not_understood=(*self.not_understood, remark))

    def notes(self, at: Directive, why: str) -> BatchRequest:
        return replace(self, changed=(*self.changed, Remark(at.line, at.said.text, why)))


Reader = Callable[[BatchRequest, Directive, str], BatchRequest]
"""Takes what was asked for so far, the directive and its value; a ValueError says what is wrong."""


def request_of(directives: Iterable[Directive]) -> BatchRequest:
    """All directives together; of an option that is given twice the last counts."""
    asked = BatchRequest()
    for each in directives:
        name, value = each.said.name, each.said.value
        if not each.said.is_known:
            asked = asked.misses(each, "sbatch has no such option")
        elif name in NOT_HERE:
            asked = asked.misses(each, NOT_HERE[name])
        elif name in NEEDLESS:
            asked = asked.notes(each, NEEDLESS[name])
        elif name in READERS:
            try:
                asked = READERS[name](asked, each, value or "")
            except ValueError as error:
                asked = asked.misses(each, str(error))
        else:
            asked = asked.misses(each, "there is nothing like it here")
    return asked


# -- readers -------------------------------------------------------------------------------------------


def _job_name(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    name = "".join(sign if sign.isprintable() and sign not in "/:" else "-" for sign in value)
    name = name.strip()[:100]
    if re.fullmatch(r"\d+(_\d+)?", name):
        name = f"job-{name}"
    if not name:
        return asked.misses(at, "a name needs characters that can be printed")
    if name != value:
        asked = asked.notes(at, f"the name is {name}: names have no slash and do not look like ids")
    return replace(asked, name=name)


def _nodes(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    least, most = amounts.nodes_of(value)
    if most > least:
        why = f"GPUs of {least} nodes are asked for; a range such as gpus: 8-16 is for programs that resize"
        asked = asked.notes(at, why)
    return replace(asked, nodes=(least, most))


Count = Literal["tasks", "tasks_per_node", "tasks_per_gpu", "cpus_per_task", "cpus_per_gpu"]


def _count(field: Count) -> Reader:
    def read(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
        found: dict[str, int] = {field: amounts.count_of(value)}
        return replace(asked, **found)  # type: ignore[arg-type]

    return read


GpuField = Literal["gpus", "gpus_per_node", "gpus_per_task"]


def _gpus(field: GpuField) -> Reader:
    def read(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
        if "," in value:
            return asked.misses(at, "several types at once: write one job for each, or A100|H100:4")
        found: dict[str, GpuRequest] = {field: amounts.gpus_of(value)}
        return replace(asked, **found)  # type: ignore[arg-type]

    return read


def _gres(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    if value.strip().lower() == "none":
        return replace(asked, gpus_per_node=None)
    gpus: list[GpuRequest] = []
    for piece in value.split(","):
        name, found = amounts.gres_of(piece)
        if name == "gpu":
            gpus.append(found)
        elif name == "mps":
            asked = replace(asked, percent=max(1, min(100, found.count)))
        elif name == "shard":
            why = (
                "how much of a GPU a shard is, only its cluster knows: one GPU is asked for; a part of one"
                " is gpus: 0.5"
            )
            asked = replace(asked.misses(at, why), gpus_per_node=GpuRequest(1))
        else:
            asked = asked.misses(at, f"there is no resource {name} here")
    if len(gpus) > 1:
        return asked.misses(at, "several types at once: write one job for each, or A100|H100:4")
    return replace(asked, gpus_per_node=gpus[0]) if gpus else asked


def _memory(field: Literal["memory", "memory_per_cpu", "memory_per_gpu"]) -> Reader:
    def read(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
        found: dict[str, int | None] = {field: amounts.bytes_of(value) or None}
        if found[field] is None:
            asked = asked.notes(
                at, "0 is all memory: it is not limited here unless memory is given"
            )
        return replace(asked, **found)  # type: ignore[arg-type]

    return read


def _time(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return replace(asked, seconds=amounts.seconds_of(value))


def _array(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    indices, limit = amounts.array_of(value)
    return replace(asked, array=(tuple(indices), limit))


def _dependency(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    found: list[str] = []
    if "?" in value:
        why = "any one of several dependencies is not possible here, only all of them"
        return _hold(asked, at, why)
    for piece in value.split(","):
        kind, *jobs = piece.split(":")
        if kind == "singleton":
            mine = asked.name or "NAME"
            why = f"it waits for other jobs of its name: write depends_on: {mine}:any when there is one"
            asked = _hold(asked, at, why)
        elif kind not in WHEN:
            asked = _hold(asked, at, f"{kind} has no counterpart: there are ok, any and fail")
        elif not all(re.fullmatch(r"\d+(_\d+)?(\+\d+)?", job) for job in jobs):
            asked = _hold(asked, at, "the jobs are named by a variable: write their ids or names")
        else:
            found += (f"{job.split('+')[0]}:{WHEN[kind]}".removesuffix(":ok") for job in jobs)
    if found:
        ids = ", ".join(found)
        asked = asked.notes(at, f"depends_on has Slurm's ids ({ids}): write those of jobs here")
    return replace(asked, depends_on=tuple(found))


def _hold(asked: BatchRequest, at: Directive, why: str) -> BatchRequest:
    """What would start too early is held."""
    return replace(asked.misses(at, f"{why}; it is held until `trainmaster resume`"), is_held=True)


def _begin(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    if value.strip().lower() == "now":
        return asked
    return _hold(asked, at, "a job does not begin at a set time here")


def _queue(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return replace(asked, partitions=(*asked.partitions, (at.said.name, value, at.line)))


def _output(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return replace(asked, output=value, output_line=at.line)


def _error(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return replace(asked, error=value, error_line=at.line)


def _open_mode(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return replace(asked, appends=value.strip().lower() != "truncate")


def _input(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return replace(asked, input=value)


def _chdir(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    if "%" in value:
        return asked.misses(at, "a pattern in a folder: write workdir by hand")
    return replace(asked, workdir=value)


def _export(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    env = list(asked.env)
    for piece in filter(None, value.split(",")):
        name, equals, text = piece.partition("=")
        if equals:
            env.append((name, text))
        elif name.upper() == "ALL":
            why = "variables of frameworks go along by themselves, `submit --export-all` takes the rest"
            asked = asked.notes(at, why)
        elif name.upper() in ("NONE", "NIL"):
            asked = asked.notes(at, "some variables of your shell go along nevertheless")
        else:
            asked = asked.notes(at, f"`submit --env {name}` takes your {name} along")
    return replace(asked, env=tuple(env))


def _deadline(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return asked.misses(at, "deadline here counts from the submission: write deadline: 1d")


def _requeue(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return replace(asked, retries=None)


def _no_requeue(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return replace(asked, retries=0)


def _signal(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    found = re.fullmatch(r"(?:[BR]{1,2}:)?(\w+)(?:@(\d+))?", value.strip())
    if found is None:
        return asked.misses(at, "this is not a signal and a time such as B:USR1@300")
    name = found[1].upper().removeprefix("SIG")
    early = min(int(found[2] or 60), LONGEST_GRACE_S)
    if name not in ("TERM", "15"):
        why = f"SIGTERM comes instead, {early} s before the end: let the program save on it, not on SIG{name}"
        asked = asked.misses(at, why)
    elif int(found[2] or 60) > LONGEST_GRACE_S:
        asked = asked.misses(at, f"the signal comes {LONGEST_GRACE_S} s before the end at most")
    return replace(asked, signal_s=early)


def _constraint(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    kinds = [GPU_WORD.fullmatch(piece.strip()) for piece in value.strip("()[]").split("|")]
    if value and all(kinds):
        names = "|".join(amounts.type_of(kind[1].lower()) for kind in kinds if kind)
        asked = asked.notes(at, f"taken as the type of GPU, {names}")
        return replace(asked, gpu_type=names)
    return asked.misses(at, "nodes have no features here")


def _nice(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    text = value or "100"
    if not re.fullmatch(r"-?\d+", text):
        return asked.misses(at, f"{text!r} is not a number")
    return replace(asked, priority=max(-1_000_000, min(1_000_000, -int(text))))


def _priority(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    if not value.isdigit() or int(value) > 1_000_000:
        return asked.misses(at, "priorities here are from -1000000 to 1000000, by default 0")
    return replace(asked, priority=int(value))


def _comment(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return replace(asked, comment=value)


def _held(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return replace(asked, is_held=True)


def _mail_user(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    found = tuple(each.strip() for each in value.split(",") if each.strip())
    if not all(re.fullmatch(r"[^@\s]+@[^@\s]+", each) for each in found):
        return asked.misses(at, "this is not a mail address: write notify: ada@example.org")
    return replace(asked, mail_to=found, mail_line=at.line)


def _mail_type(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    occasions: list[str] = []
    for word in value.upper().split(","):
        if word not in OCCASIONS:
            asked = asked.misses(at, f"nothing is told of {word}: there are {_KNOWN_OCCASIONS}")
        occasions += OCCASIONS.get(word, ())
    return replace(asked, mail_on=tuple(dict.fromkeys(occasions)), mail_line=at.line)


def _image(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return replace(asked, image=value)


def _container_option(asked: BatchRequest, at: Directive, value: str) -> BatchRequest:
    return replace(asked, container_options=(*asked.container_options, at.said))


READERS: dict[str, Reader] = {
    "account": _queue,
    "array": _array,
    "begin": _begin,
    "chdir": _chdir,
    "comment": _comment,
    "constraint": _constraint,
    "container-image": _image,
    "container-mounts": _container_option,
    "container-workdir": _container_option,
    "container-writable": _container_option,
    "cpus-per-gpu": _count("cpus_per_gpu"),
    "cpus-per-task": _count("cpus_per_task"),
    "deadline": _deadline,
    "dependency": _dependency,
    "error": _error,
    "export": _export,
    "gpus": _gpus("gpus"),
    "gpus-per-node": _gpus("gpus_per_node"),
    "gpus-per-task": _gpus("gpus_per_task"),
    "gres": _gres,
    "hold": _held,
    "input": _input,
    "job-name": _job_name,
    "mail-type": _mail_type,
    "mail-user": _mail_user,
    "mem": _memory("memory"),
    "mem-per-cpu": _memory("memory_per_cpu"),
    "mem-per-gpu": _memory("memory_per_gpu"),
    "nice": _nice,
    "no-requeue": _no_requeue,
    "nodes": _nodes,
    "ntasks": _count("tasks"),
    "ntasks-per-gpu": _count("tasks_per_gpu"),
    "ntasks-per-node": _count("tasks_per_node"),
    "open-mode": _open_mode,
    "output": _output,
    "partition": _queue,
    "priority": _priority,
    "qos": _queue,
    "requeue": _requeue,
    "signal": _signal,
    "time": _time,
}

_CPUS = "cores are not counted so here: cpus: 8 asks for cores for each GPU"
_BINDING = "processes are not bound to cores, memory or GPUs by hand here"
_NODES = "the manager chooses the nodes; `trainmaster node drain` takes one out of service"
NOT_HERE = {
    "batch": _NODES,
    "bb": "there are no burst buffers here",
    "bbf": "there are no burst buffers here",
    "cluster-constraint": "there is one cluster",
    "clusters": "there is one cluster",
    "container": "an OCI bundle: write container: {docker: IMAGE} or {apptainer: FILE}",
    "contiguous": _NODES,
    "core-spec": _CPUS,
    "cores-per-socket": _CPUS,
    "cpu-freq": "frequencies are not set",
    "epilog": "there is no epilog: put it at the end of the command",
    "exclude": _NODES,
    "export-file": "`trainmaster submit --env-file FILE` takes variables of a file along",
    "extra-node-info": _CPUS,
    "gid": "a job runs under its user's groups",
    "gpu-freq": "frequencies are not set",
    "gpus-per-socket": "GPUs are not counted by socket: write gpus",
    "licenses": "there are no licences here",
    "mincpus": _CPUS,
    "network": "networks are not chosen",
    "nodefile": _NODES,
    "nodelist": _NODES,
    "ntasks-per-core": _CPUS,
    "ntasks-per-socket": _CPUS,
    "oversubscribe": "sharing: time, or a part of a GPU, shares GPUs",
    "overcommit": _CPUS,
    "prolog": "there is no prolog: put it at the beginning of the command",
    "reservation": "there are no reservations for job files",
    "reboot": "nodes are not rebooted",
    "sockets-per-node": _CPUS,
    "switches": _NODES,
    "thread-spec": _CPUS,
    "time-min": "a job has one limit of time, max_runtime",
    "tmp": "room on disks is not booked",
    "tres-per-task": "write gpus, cpus and memory",
    "uid": "`user` says whose job it is",
    "wrap": "write command",
    "x11": "`trainmaster shell` opens a session",
    "spread-job": _NODES,
    "use-min-nodes": _NODES,
    "prefer": "nodes have no features here",
    "power": "power is not managed",
}
"""Options without a counterpart, and what to do instead."""
NEEDLESS = {
    "acctg-freq": "use is measured all the time",
    "cpu-bind": _BINDING,
    "delay-boot": "nodes are not booted",
    "disable-stdout-job-summary": "there is no summary",
    "distribution": _BINDING,
    "exclusive": "whole GPUs are a job's own; other jobs may use the rest of the node",
    "get-user-env": "variables of frameworks go along, `submit --export-all` takes the rest",
    "gpu-bind": _BINDING,
    "gres-flags": _BINDING,
    "hint": _BINDING,
    "ignore-pbs": "nothing else is read",
    "kill-on-bad-exit": "a job ends when one of its ranks fails",
    "mcs-label": "there are no labels",
    "mem-bind": _BINDING,
    "no-kill": "a lost job starts again by itself",
    "parsable": "`trainmaster submit --parsable`",
    "profile": "use is measured all the time",
    "propagate": "limits are those of the manager",
    "quiet": "it concerns sbatch alone",
    "test-only": "`trainmaster submit --dry-run`",
    "threads-per-core": _BINDING,
    "tres-bind": _BINDING,
    "verbose": "it concerns sbatch alone",
    "wait": "`trainmaster submit --wait`",
    "wckey": "there are no keys of workloads",
}
"""Options that a job does without."""
