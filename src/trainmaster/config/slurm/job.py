"""A batch script as a job file, with what is not understood and what is said in another way."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainmaster.config.slurm import amounts, variables
from trainmaster.config.slurm.batch_request import BatchRequest, request_of
from trainmaster.config.slurm.script import Remark, Script
from trainmaster.config.slurm.steps import (
    INSTEAD,
    Step,
    asks_for_hosts,
    other_commands,
    steps,
)
from trainmaster.config.slurm.variables import JobNumbers

SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
PYTHON = re.compile(r"python[\d.]*")
MODULES = re.compile(r"^\s*(?:module|ml|spack)\s|^\s*(?:conda|mamba|micromamba)\s+activate", re.M)
OUTSIDE = re.compile(r"^\s*(?:module|ml|spack|conda|mamba|source|\.)\s")
"""Lines that prepare the machine; in a container there is nothing for them to prepare."""
LOGIN = (
    "for each in /etc/profile ~/.bash_profile ~/.profile; do"
    ' [ -r "$each" ] && . "$each"; done  # modules and conda, as in a login shell'
)
HOST_NAMES = "scontrol() { printf '%s\\n' \"$MASTER_ADDR\"; }  # show hostnames: this machine"
NEXT_GPUS = """next_gpus() {  # gives a step $1 GPUs of the job, in turn
  local all; IFS=, read -ra all <<< "$CUDA_VISIBLE_DEVICES"
  STEP_GPUS=; local i; for ((i = 0; i < $1 && ${#all[@]}; i++)); do
    STEP_GPUS+=${STEP_GPUS:+,}${all[$((next_gpu++ % ${#all[@]}))]}; done
}"""
PATTERNS = {
    "%j": "${SLURM_JOB_ID}",
    "%J": "${SLURM_JOB_ID}",
    "%A": "${TRAINMASTER_JOB%%_*}",
    "%a": "${TRAINMASTER_ARRAY_INDEX}",
    "%x": "${SLURM_JOB_NAME}",
    "%u": "$(id -un)",
    "%N": "$(hostname -s)",
    "%n": "${NODE_RANK}",
    "%t": "${RANK}",
    "%%": "%",
}
"""What stands for what in the names of output files."""
FIXED_NODES = re.compile(
    r"--(?:nnodes|num[_-]machines|num[_-]nodes|nproc[_-]per[_-]node)[= ]\d+|--hostfile[= ]\S+"
)
GIVEN = re.compile(
    r"^([ \t]*)((?:export[ \t]+)?(MASTER_ADDR|MASTER_PORT|CUDA_VISIBLE_DEVICES)=(?![^\n]*\\$)"
    r"(?:\"[^\n]*\"|'[^\n]*'|\$\([^\n]*\)|[^\s;&|]*))[ \t]*(?:#[^\n]*)?$",
    re.MULTILINE,
)
"""A line that sets what the manager sets; with a device or a port of its own it would be another job's."""
INLINE_DEVICES = re.compile(r"\bCUDA_VISIBLE_DEVICES=(?!\$STEP_GPUS)\S+")
PER_DEVICE = 0.1
"""The part of a device that a job without GPUs asks for."""
QUIET = re.compile(
    r"\s*(?:#.*|export\s.*|[A-Za-z_]\w*=(?:\(.*\)|\$\(.*\)|\"[^\"]*\"|'[^']*'|\S*)|set\s.*|echo\s.*|cd\s.*"
    r"|module\s.*|ml\s.*|source\s.*|\.\s.*|conda\s.*|date|hostname|pwd|nvidia-smi.*|ulimit\s.*|unset\s.*"
    r"|wait|[A-Za-z_]\w*=`[^`]*`)?\s*"
)
OPENED = re.compile(r"\s*(?:export\s+)?[A-Za-z_]\w*=\"[^\"]*$")
"""An assignment that goes on in the next line."""
"""Lines that do no harm when every rank runs them."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """How scripts are to be imported."""

    queues: Mapping[str, str] = field(default_factory=dict)
    """The queue for a partition, an account or a QOS."""
    gpu_types: Mapping[str, str] = field(default_factory=dict)
    """Our name for a type of GPU; empty: any."""
    writes_output: bool = False
    """Whether the output also goes to the files that the script names."""
    all_variables: bool = False
    """Whether all of Slurm's variables are set, and not only those that the script names."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The job file of a script."""

    fields: Mapping[str, object]
    not_understood: tuple[Remark, ...]
    changed: tuple[Remark, ...]
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Amounts:
    """Tasks, nodes and GPUs of a job."""

    nodes: int
    tasks: int
    gpus: int
    type: str


def imported(script: Script, wishes: Wishes | None = None) -> Imported:
    """The job file of a script; whatever it asks for that is not in it is among the remarks."""
    wishes = wishes or Wishes()
    asked = request_of(script.directives)
    if script.has_parts:
        asked = replace(asked, is_held=True)
    body = "\n".join(script.body)
    found = list(steps(body))
    amount = _amounts(asked, found)
    plan = _plan(found, asked, amount)
    asked, container = _container(plan.asked, found, body)
    if amount.nodes > 1 and not plan.is_ranked:
        asked = _fixed_nodes(asked, script.body)
    queue, asked = _queue(asked, wishes)
    numbers = _numbers(asked, amount, plan.is_ranked)
    command, asked = _command(script, found, plan, asked, numbers, wishes)
    fields: dict[str, object] = {
        "name": asked.name,
        "command": command,
        "gpus": _gpus(asked, amount, plan, wishes),
        "sharing": "mps" if asked.percent is not None and asked.percent < 100 else None,
        "ranks": "gpu" if plan.is_ranked else None,
        "cpus": _cpus(asked, amount),
        "memory": _memory(asked, amount),
        "queue": queue,
        "priority": asked.priority or None,
        "max_runtime": _max_runtime(asked),
        "grace_period": None if asked.signal_s is None else amounts.duration(asked.signal_s or 30),
        "retries": asked.retries,
        "held": asked.is_held or None,
        "array": _array(asked),
        "depends_on": _dependencies(asked),
        "workdir": asked.workdir,
        "env": dict(asked.env) or None,
        "container": container,
        "notify": _notify(asked),
        "preflight": False if amount.gpus > 1 else None,
    }
    if not amount.gpus and asked.percent is None:
        why = "it asks for no GPU; a job sits on a device here, and a tenth of one is asked for"
        asked = _note(asked, 0, "", why)
    if asked.mail_on and not asked.mail_to:
        why = "whom to tell is not said: write notify: ada@example.org"
        asked = _note(asked, asked.mail_line, "--mail-type", why, is_lost=True)
    kept = {name: value for name, value in fields.items() if value is not None}
    by_line = sorted((*asked.not_understood, *script.faults), key=lambda each: each.line)
    changed = sorted((*asked.changed, *script.ignored), key=lambda each: each.line)
    return Imported(kept, tuple(by_line), tuple(changed), asked.comment)


def _note(
    asked: BatchRequest, line: int, text: str, why: str, *, is_lost: bool = False
) -> BatchRequest:
    remark = Remark(line, text, why)
    if is_lost:
        return replace(asked, not_understood=(*asked.not_understood, remark))
    return replace(asked, changed=(*asked.changed, remark))


def _fixed_nodes(asked: BatchRequest, body: Sequence[str]) -> BatchRequest:
    """Numbers of nodes that launchers are given, and that may be others here."""
    for number, line in enumerate(body, 1):
        for found in () if line.lstrip().startswith("#") else FIXED_NODES.finditer(line):
            why = "the manager chooses the nodes, today one machine: leave it out, and the launcher is told"
            asked = _note(asked, number, found[0], why, is_lost=True)
    return asked


# -- amounts -------------------------------------------------------------------------------------------


def _amounts(asked: BatchRequest, found: Sequence[Step]) -> Amounts:
    """How many, however it was said."""
    nodes = asked.nodes[0] if asked.nodes else 1
    if asked.nodes is None and asked.tasks and asked.tasks_per_node:
        nodes = -(-asked.tasks // asked.tasks_per_node)
    tasks = asked.tasks or (asked.tasks_per_node or 0) * nodes
    request = asked.gpus or asked.gpus_per_node or asked.gpus_per_task
    if asked.gpus is not None:
        gpus = asked.gpus.count
    elif asked.gpus_per_node is not None:
        gpus = asked.gpus_per_node.count * nodes
    elif asked.gpus_per_task is not None:
        gpus = asked.gpus_per_task.count * (tasks or nodes)
    else:
        gpus = 0
    if not tasks and asked.tasks_per_gpu:
        tasks = asked.tasks_per_gpu * gpus
    if not tasks and not gpus:
        gpus = max((_step_gpus(step) * (_step_tasks(step) or 1) for step in found), default=0)
    return Amounts(nodes, tasks or nodes, gpus, (request.type if request else "") or asked.gpu_type)


def _gpus(asked: BatchRequest, amount: Amounts, plan: Plan, wishes: Wishes) -> object:
    if asked.percent is not None and asked.percent < 100:
        return asked.percent / 100
    kind = wishes.gpu_types.get(amount.type, wishes.gpu_types.get(amount.type.lower(), amount.type))
    if not amount.gpus:
        return f"{kind}:1" if kind else PER_DEVICE
    return f"{kind}:{amount.gpus}" if kind else amount.gpus


def _cpus(asked: BatchRequest, amount: Amounts) -> object:
    """Cores for each GPU."""
    if asked.cpus_per_gpu is not None:
        return asked.cpus_per_gpu
    if asked.cpus_per_task is None:
        return amount.tasks if amount.tasks > 1 and not amount.gpus else None
    cores = asked.cpus_per_task * amount.tasks / (amount.gpus or 1)
    return int(cores) if cores == int(cores) else round(cores, 2)


def _memory(asked: BatchRequest, amount: Amounts) -> str | None:
    """Host memory for each GPU."""
    devices = amount.gpus or 1
    if asked.memory_per_gpu is not None:
        return amounts.size(asked.memory_per_gpu)
    if asked.memory_per_cpu is not None:
        cores = (asked.cpus_per_task or 1) * amount.tasks
        if asked.cpus_per_gpu is not None:
            cores = asked.cpus_per_gpu * devices
        return amounts.size(asked.memory_per_cpu * cores // devices)
    if asked.memory is not None:
        return amounts.size(asked.memory * amount.nodes // devices)
    return None


def _max_runtime(asked: BatchRequest) -> str | None:
    """The limit; where the script wants a signal before it, that much earlier, and as grace after it."""
    if asked.seconds is None:
        return None
    early = asked.signal_s or 0
    return amounts.duration(asked.seconds - early if asked.seconds > early else asked.seconds)


def _array(asked: BatchRequest) -> str | None:
    return (
        None if asked.array is None else amounts.indices_text(list(asked.array[0]), asked.array[1])
    )


def _dependencies(asked: BatchRequest) -> list[str] | None:
    return list(asked.depends_on) or None


def _notify(asked: BatchRequest) -> dict[str, object] | None:
    if not asked.mail_to or not asked.mail_on:
        return None
    return {"to": list(asked.mail_to), "on": list(asked.mail_on)}


def _numbers(asked: BatchRequest, amount: Amounts, is_ranked: bool) -> JobNumbers:
    named = {option: value for option, value, _ in asked.partitions}
    return JobNumbers(
        name=asked.name or "job",
        tasks=amount.tasks,
        is_ranked=is_ranked,
        cpus_per_task=asked.cpus_per_task,
        indices=asked.array[0] if asked.array is not None else (),
        partition=named.get("partition", ""),
        account=named.get("account", ""),
        qos=named.get("qos", ""),
        memory=asked.memory,
    )


def _queue(asked: BatchRequest, wishes: Wishes) -> tuple[str | None, BatchRequest]:
    """The queue that the map gives for a partition, an account or a QOS; the others are listed."""
    queue = None
    for option, value, line in asked.partitions:
        found = next((wishes.queues[one] for one in value.split(",") if one in wishes.queues), None)
        text = f"--{option}={value}"
        if found is None:
            why = f"no queue is known for it: `--queue-map {value.split(',')[0]}=QUEUE` gives one"
            asked = _note(asked, line, text, why, is_lost=True)
        elif queue is not None and queue != found:
            asked = _note(asked, line, text, f"the queue is {queue} already", is_lost=True)
        else:
            queue = found
    return queue, asked


# -- steps ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """How the steps of a body are started here."""

    is_ranked: bool
    """Whether the whole body runs once for each GPU."""
    edits: tuple[tuple[int, int, str], ...]
    asked: BatchRequest
    takes_turns: bool = False
    """Whether steps get GPUs of their own."""


MPI = frozenset({"pmi2", "pmix", "pmix_v3", "pmix_v4", "openmpi", "cray_shasta"})
KNOWN = frozenset(
    {
        *("ntasks", "nodes", "ntasks-per-node", "gpus", "gres", "gpus-per-task", "gpus-per-node"),
        *("output", "error", "export", "container-image", "container-mounts", "container-workdir"),
        *("container-name", "container-writable", "mpi"),
    }
)
TOO_MUCH = {
    "multi-prog": "several programs in one step: write a job for each",
    "pty": "an interactive step: `trainmaster shell`",
    "chdir": "put `cd` before the command",
    "input": "put `< FILE` behind the command",
    "task-prolog": "put it into the command",
    "task-epilog": "put it into the command",
}
"""Options of srun that change what runs and have no counterpart."""


def _step_tasks(step: Step) -> int | None:
    for name in ("ntasks", "ntasks-per-node"):
        text = step.value(name)
        if text is not None:
            return int(text) if text.isdigit() else None
    return None


def _step_gpus(step: Step) -> int:
    """GPUs that a step of one task asks for."""
    for name in ("gpus", "gpus-per-task", "gpus-per-node", "gres"):
        text = step.value(name)
        if text is not None:
            try:
                return (
                    amounts.gres_of(text)[1].count
                    if name == "gres"
                    else amounts.gpus_of(text).count
                )
            except ValueError:
                return 0
    return 0


def _plan(found: Sequence[Step], asked: BatchRequest, amount: Amounts) -> Plan:
    """One process for each GPU where a single step has a task for each; else the body runs once."""
    wide = [step for step in found if _tasks_of(step, amount) > 1 and not step.is_inner]
    is_ranked = (
        amount.gpus > 1
        and len(wide) == 1
        and _tasks_of(wide[0], amount) == amount.gpus
        and (wide[0].value("mpi") or "") not in MPI
        and not wide[0].is_in_loop
        and not wide[0].is_background
    )
    own = [step for step in found if step.is_background and _step_gpus(step) and step.is_plain]
    takes_turns = not is_ranked and bool(own) and amount.gpus > 1
    edits: list[tuple[int, int, str]] = []
    for step in found:
        before, asked = _instead(step, asked, amount, is_ranked, takes_turns and step in own)
        edits.append((step.start, step.command_at, before))
    return Plan(is_ranked, tuple(edits), asked, takes_turns)


def _tasks_of(step: Step, amount: Amounts) -> int:
    stated = _step_tasks(step)
    if stated is not None and step.value("ntasks") is None:  # for each node
        return stated * amount.nodes
    if stated is None and step.value("nodes") == "1" and amount.nodes > 1:
        return 1
    return amount.tasks if stated is None else stated


def _instead(
    step: Step, asked: BatchRequest, amount: Amounts, is_ranked: bool, has_own_gpus: bool
) -> tuple[str, BatchRequest]:
    """What stands in the place of `srun` and its options."""
    for each in step.said:
        if not each.is_known:
            asked = _note(asked, step.line, each.text, "srun has no such option", is_lost=True)
        elif each.name in TOO_MUCH:
            asked = _note(asked, step.line, each.text, TOO_MUCH[each.name], is_lost=True)
    before = _redirections(step)
    assigned = [piece for piece in (step.value("export") or "").split(",") if "=" in piece]
    before += "".join(f"{piece} " for piece in assigned)
    tasks = _tasks_of(step, amount)
    if has_own_gpus:
        count = _step_gpus(step)
        why = f"the step gets {count} of the job's GPUs, in turn"
        asked = _note(asked, step.line, step.text, why)
        return f"next_gpus {count}; {before}CUDA_VISIBLE_DEVICES=$STEP_GPUS ", asked
    if is_ranked and tasks == amount.gpus:
        why = "the job has ranks: gpu, one process for each GPU, which runs the whole script"
        return before, _note(asked, step.line, step.text, why)
    if tasks > max(1, amount.nodes) and not step.is_inner:
        why = (
            f"{tasks} tasks: started by mpirun, as MPI programs are; for one process for each GPU write"
            " ranks: gpu"
        )
        return f"{before}mpirun -n {tasks} ", _note(asked, step.line, step.text, why, is_lost=True)
    why = "the command runs without it" + (", once on each node" if amount.nodes > 1 else "")
    if step.is_background and _step_gpus(step) and amount.gpus > 1:
        why = "the steps see all GPUs of the job: give each its own by CUDA_VISIBLE_DEVICES"
        return before, _note(asked, step.line, step.text, why, is_lost=True)
    return before, _note(asked, step.line, step.text, why)


def _redirections(step: Step) -> str:
    out, error = step.value("output"), step.value("error")
    said = f'>"{_file(out)}" ' if out and out != "none" else ""
    if error and error != "none":
        return f'{said}2>"{_file(error)}" '
    return f"{said}2>&1 " if said else ""


def _file(pattern: str) -> str:
    """The name of an output file, for the shell."""
    found = re.sub(r"%(\d*)([jJAaxuNnt%])", lambda it: PATTERNS[f"%{it[2]}"], pattern)
    return found.replace('"', '\\"')


# -- containers ----------------------------------------------------------------------------------------


def _container(
    asked: BatchRequest, found: Sequence[Step], body: str
) -> tuple[BatchRequest, object]:
    """The container that all steps run in; its options from the step, or from the script."""
    stated = {
        step.value("container-image"): step for step in found if step.value("container-image")
    }
    images = [each for each in (*stated, asked.image) if each]
    if not images:
        return asked, None
    if len(set(images)) > 1:
        lines = ", ".join(images)
        why = f"several containers ({lines}): write a job for each; it is held until `trainmaster resume`"
        line = next(iter(stated.values())).line
        asked = _note(asked, line, "--container-image", why, is_lost=True)
        return replace(asked, is_held=True), None
    image = images[0]
    step = stated.get(image)
    said = (*asked.container_options, *(step.said if step is not None else ()))
    line = step.line if step is not None else 0
    is_file = image.startswith((".", "/", "$", "~")) or image.endswith(".sqsh")
    flag = "--mount" if is_file else "--volume"
    options: list[object] = []
    for each in said:
        if each.name == "container-mounts" and each.value:
            for mount in each.value.split(","):
                options += [flag, mount if ":" in mount else f"{mount}:{mount}"]
            why = f"a manager that runs jobs as their users (`up --system`) refuses {flag}"
            asked = _note(asked, line, each.text, why)
        elif each.name == "container-workdir" and each.value and not is_file:
            options += ["--workdir", each.value]
        elif each.name in ("container-workdir", "container-name", "container-env"):
            why = "the container begins in the job's folder, under a name of its own"
            asked = _note(asked, line, each.text, why, is_lost=True)
    for number, text in enumerate(body.split("\n"), 1):
        if OUTSIDE.match(text):
            why = "the whole script runs in the container, where this may not work"
            asked = _note(asked, number, text.strip(), why, is_lost=True)
    if "$" in image:
        why = "the image is named by a variable: write its name"
        asked = replace(_note(asked, line, image, why, is_lost=True), is_held=True)
    name = image if is_file else _registry_name(image)
    if not is_file:
        why = f"Docker runs {name}; with enroot: `enroot import`, and container: {{enroot: FILE}}"
        asked = _note(asked, line, f"--container-image={image}", why)
    made: dict[str, object] = {"enroot" if is_file else "docker": name}
    return asked, made | ({"options": options} if options else {})


def _registry_name(image: str) -> str:
    """`nvcr.io#nvidia/pytorch:24.01` of enroot is `nvcr.io/nvidia/pytorch:24.01` elsewhere."""
    return image.removeprefix("docker://").replace("#", "/", 1)


# -- the command ---------------------------------------------------------------------------------------


def _command(
    script: Script,
    found: Sequence[Step],
    plan: Plan,
    asked: BatchRequest,
    numbers: JobNumbers,
    wishes: Wishes,
) -> tuple[object, BatchRequest]:
    """The body for its interpreter, with what it needs before it."""
    if not any(line.strip() and not line.lstrip().startswith("#") for line in script.body):
        return None, asked
    body = "\n".join(script.body)
    for line, name in other_commands(body):
        asked = _note(asked, line, name, f"there is no {name} here: {INSTEAD[name]}", is_lost=True)
    program = _program(script.interpreter)
    text, asked = _without_given(_edited(body, plan.edits), asked)
    is_shell = program.rsplit("/", 1)[-1] in SHELLS
    prelude, asked = _prelude(text, plan, asked, numbers, wishes, is_shell=is_shell)
    if plan.is_ranked:
        asked = _repeated(body, found, asked)
    text = _without_margins(text)
    if not is_shell:
        return _in_program(script, program, text, prelude, asked)
    is_login = bool({"-l", "--login"} & set(script.interpreter)) or MODULES.search(body)
    lines = [*([LOGIN] if is_login else []), *prelude]
    if not lines and "\n" not in text.strip() and text.strip():
        return text.strip(), asked
    if lines:
        lines = ["# What Slurm would have set:", *lines, "# The script:"]
    if plan.takes_turns or (wishes.writes_output and asked.output):
        program = "/bin/bash"  # the lines above are for no other shell
    flags = [word for word in script.interpreter[1:] if word in ("-e", "-u", "-x", "-eu", "-ex")]
    whole = "\n".join([*(f"set {flag}" for flag in flags), *lines, text]).strip("\n") + "\n"
    return [program, "-c", whole], asked


def _program(interpreter: Sequence[str]) -> str:
    """What runs the script; bash where nothing is said."""
    named = [word for word in interpreter if not word.startswith("-")]
    if named and named[0].endswith("/env"):
        return named[1] if len(named) > 1 else "/bin/bash"
    return named[0] if named else "/bin/bash"


def _in_program(
    script: Script, program: str, text: str, prelude: Sequence[str], asked: BatchRequest
) -> tuple[object, BatchRequest]:
    """For another interpreter than a shell; a shell sets the variables and makes room for it."""
    body = text.strip("\n") + "\n"
    if not PYTHON.fullmatch(program.rsplit("/", 1)[-1]):
        why = f"scripts for {program} are started as they are, by `{program} -c`"
        asked = _note(asked, 1, program, why, is_lost=True)
    if not prelude:
        return [program, "-c", body], asked
    sets = "\n".join(["# What Slurm would have set:", *prelude, 'exec "$0" -c "$1"\n'])
    return ["/bin/bash", "-c", sets, program, body], asked


def _edited(body: str, edits: Sequence[tuple[int, int, str]]) -> str:
    for start, end, text in sorted(edits, reverse=True):
        body = body[:start] + text + body[end:]
    return body


def _without_given(text: str, asked: BatchRequest) -> tuple[str, BatchRequest]:
    """Assignments of what the manager sets become comments; edits of `srun` keep the lines where they are."""
    for found in GIVEN.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        asked = _note(asked, line, found[2], f"the manager sets {found[3]}")
    text = GIVEN.sub(r"\1# set by the manager: \2", text)
    for number, line_text in enumerate(text.split("\n"), 1):
        for found in (
            () if line_text.lstrip().startswith("#") else INLINE_DEVICES.finditer(line_text)
        ):
            why = "these may be GPUs of other jobs: the manager sets CUDA_VISIBLE_DEVICES"
            asked = _note(asked, number, found[0], why, is_lost=True)
    return text, asked


def _without_margins(text: str) -> str:
    """Without empty lines at both ends, and with at most one in a row."""
    return re.sub(r"\n{3,}", "\n\n", text.strip("\n"))


def _prelude(
    text: str,
    plan: Plan,
    asked: BatchRequest,
    numbers: JobNumbers,
    wishes: Wishes,
    *,
    is_shell: bool,
) -> tuple[list[str], BatchRequest]:
    """Lines before the script: variables of Slurm, output files, helpers."""
    known = variables.values(numbers)
    if not is_shell:
        del known[variables.TMPDIR]  # nothing is left that would remove it at the end
    files = [each for each in (asked.output, asked.error) if each] if wishes.writes_output else []
    named = " ".join(map(_file, files))
    wanted = dict.fromkeys(variables.NAME.findall(named), 0)
    for line, name in variables.used(text):
        wanted.setdefault(name, line)
    own = set(re.findall(r"(?:^|[\s;])(?:export\s+)?(SLURM_\w+)=", text))
    lines: list[str] = []
    for name, line in wanted.items():
        if name in own:
            continue
        if name in known:
            continue
        why = "this variable of Slurm has no counterpart, and is not set"
        asked = _note(asked, line, name, why, is_lost=True)
    names = [name for name in known if name in wanted or wishes.all_variables]
    lines += (f"export {name}={known[name]}" for name in names if name not in own)
    if is_shell and asks_for_hosts(text):
        lines.append(HOST_NAMES)
    if is_shell and plan.takes_turns:
        lines.append(NEXT_GPUS)
    if is_shell:
        lines += _streams(asked, wishes)
        lines += _at_end(asked, wishes, [name for name in names if name not in own])
    if asked.output and not wishes.writes_output:
        why = "`trainmaster logs JOB` has the output; `import --output-files` also writes the file"
        asked = _note(asked, asked.output_line, f"--output={asked.output}", why)
    if asked.error and not wishes.writes_output:
        why = "`trainmaster logs JOB` has the output"
        asked = _note(asked, asked.error_line, f"--error={asked.error}", why)
    return lines, asked


def _streams(asked: BatchRequest, wishes: Wishes) -> Iterator[str]:
    """Input from a file, and output to files besides; what copies it outlives the script."""
    if asked.input:
        yield f'exec <"{_file(asked.input)}"'
    if not wishes.writes_output or not asked.output:
        return
    flag = "-a " if asked.appends else ""
    for name in dict.fromkeys((asked.output, asked.error or "")):
        if "/" in name:
            yield f'mkdir -p "{_file(name).rpartition("/")[0]}"'
    has_own_error = asked.error and asked.error != asked.output
    copy = f"trap '' TERM INT; exec tee {flag}"
    if has_own_error:
        yield f'exec 2> >({copy}"{_file(asked.error or "")}" >&2); ERROR_COPY=$!'
    both = "" if has_own_error else " 2>&1"
    yield f'exec > >({copy}"{_file(asked.output)}"){both}; OUTPUT_COPY=$!'


def _at_end(asked: BatchRequest, wishes: Wishes, names: Sequence[str]) -> Iterator[str]:
    """One trap for all that has to be done at the end."""
    done = []
    if wishes.writes_output and asked.output:
        done.append("exec >&- 2>&-; wait $OUTPUT_COPY ${ERROR_COPY:-}")
    if variables.TMPDIR in names:
        done.append('rm -rf "$SLURM_TMPDIR"')
    if done:
        yield f"trap '{'; '.join(done)}' EXIT"


def _repeated(body: str, found: Sequence[Step], asked: BatchRequest) -> BatchRequest:
    """Lines that every rank runs now, and that may do harm."""
    spans = [(step.line, body.count("\n", 0, step.end) + 1) for step in found]
    quotes, ending, was_continued = 0, "", False
    for number, line in enumerate(body.split("\n"), 1):
        is_inside = bool(quotes % 2 or ending or was_continued)
        is_step = any(first <= number <= last for first, last in spans)
        quotes += len(re.findall(r'(?<!\\)"', line))
        was_continued = line.endswith("\\")
        here = re.search(r"<<-?\s*['\"]?(\w+)", line)
        ending = "" if ending and line.strip() == ending else ending or (here[1] if here else "")
        if is_inside or is_step or QUIET.fullmatch(line) or OPENED.match(line):
            continue
        why = "every process runs it now, one for each GPU: `[ $RANK = 0 ] &&` before it makes it once"
        asked = _note(asked, number, line.strip(), why)
    return asked
