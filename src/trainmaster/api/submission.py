"""Turns a checked job file into a submission, with every default filled in."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainmaster.api.containers import can_be_stopped, prefix_of
from trainmaster.config.command_line import SHELL, launcher_of, program_of
from trainmaster.config.job_file import JobFile
from trainmaster.config.limits import Limits
from trainmaster.config.validation import ConfigError
from trainmaster.daemon.service_api import Submission
from trainmaster.model.job import Demand, Job, Shape
from trainmaster.model.launch_spec import Account, LaunchSpec, OnHang, Ranks
from trainmaster.model.placement import Role, Sharing


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a job file leaves to its submitter."""

    user: str
    workdir: Path | None = None
    """Where relative paths begin, and where a job without a workdir runs; None: only absolute ones."""
    device_type: str | None = None
    """What a job gets that names no type: `cpu` where CPU slots stand in for GPUs."""
    snapshot: bool = False
    """Whether code is copied where a job does not say: where its node does not see the folder."""
    command_bytes: int = Limits().command_bytes
    """How long a command may be."""
    account_of: Callable[[str], Account] | None = None
    """Which Unix account jobs of a user run as; None: all run as the manager's."""


def submission_of(model: JobFile, defaults: Defaults, spec: Mapping[str, object]) -> Submission:
    """The job as it is submitted; whether its folders exist, the manager checks."""
    _check_command(model, defaults.command_bytes)
    user = model.user or defaults.user
    account = None if defaults.account_of is None else defaults.account_of(user)
    home = Path.home() if account is None else Path(account.home)
    workdir, keeps_code = _workdir(model, defaults, home)
    program = program_of(model.command)
    job = Job(
        id="",
        submit_ms=0,
        demand=demand_of(model, defaults.device_type),
        queue=model.queue,
        user=user,
        app=program[:100],
        model=model.model or "",
        role=Role(model.role),
        priority=model.priority,
        retries=model.retries,
        grace_ms=model.grace_period,
        deadline_ms=model.deadline,
        iterations=model.iterations,
        preemptible=model.preemptible,
        stays_in_memory=_may_stay_in_memory(model),
        max_runtime_ms=model.max_runtime,
    )
    recipe = replace(_recipe(model, workdir, user, program, home), account=account)
    return Submission(
        job=job,
        recipe=recipe,
        spec=spec,
        array=model.array,
        depends_on=model.depends_on,
        keeps_code=keeps_code,
        data=tuple(str(_absolute("data", each, workdir, home)) for each in model.data)
        + tuple(path for _, path in recipe.secrets),
        is_held=model.held,
    )


def _check_command(model: JobFile, most: int) -> None:
    words = [model.command] if isinstance(model.command, str) else model.command
    length = sum(len(word.encode("utf-8", "replace")) for word in words)
    if length > most:
        raise ConfigError(
            f"command has {length:,} bytes, and may have {most:,} (the limit command_bytes): put it into"
            " a script."
        )


def demand_of(model: JobFile, device_type: str | None = None) -> Demand:
    """The shapes it accepts. A range starts at its smaller end; policies that resize let it grow."""
    gpus = model.gpus
    demand = Demand(
        nominal=Shape(count=gpus.least, share=gpus.share, memory=model.gpu_memory or 0),
        min_count=gpus.least,
        max_count=gpus.most,
        gpu_type=gpus.type or device_type,
        sharing=None if model.sharing is None else Sharing(model.sharing),
    )
    cpus, memory = (
        None if each is None else demand.for_whole_gpu(each) for each in (model.cpus, model.memory)
    )
    return replace(demand, cpus=cpus, host_memory=memory)


def _recipe(model: JobFile, workdir: Path, user: str, program: str, home: Path) -> LaunchSpec:
    command, ranks = model.command, Ranks(model.ranks)
    # Amounts of the file are for each GPU; the one process of a node may hold all of its GPUs.
    times = model.gpus.most if ranks is Ranks.PER_NODE else 1
    memory = None if model.memory is None else model.memory * times
    cpus = None if model.cpus is None else model.cpus * times
    own = (*model.env, *model.secrets)
    return LaunchSpec(
        command=(*SHELL, command) if isinstance(command, str) else command,
        workdir=str(workdir),
        checkpoint_dir=_checkpoint_dir(model, workdir, home),
        name=model.name or _fit_name(program),
        user=user,
        env=tuple(model.env.items()),
        prefix=prefix_of(model.container, own, model.grace_period, memory, cpus),
        ranks=ranks,
        launcher=launcher_of(command),
        umask=model.umask,
        grace_ms=model.grace_period,
        memory=memory,
        cpus=cpus,
        max_runtime_ms=model.max_runtime,
        may_stay_in_memory=_may_stay_in_memory(model),
        counts_steps=model.count_steps,
        on_hang=OnHang(model.on_hang),
        preflight=model.preflight,
        prerun_steps=model.preflight_steps,
        tolerance_ppm=model.tolerance,
        secrets=tuple(
            (name, str(_absolute("secrets", path, workdir, home)))
            for name, path in model.secrets.items()
        ),
    )


def _may_stay_in_memory(model: JobFile) -> bool:
    return model.stays_in_memory and can_be_stopped(model.container)


def _fit_name(program: str) -> str:
    """A program's name as a job's: never like an id, without characters that a name may not have."""
    kept = "".join(sign if sign.isprintable() and sign != "/" else "-" for sign in program[:100])
    kept = kept.strip()
    return kept if kept and not kept[0].isdigit() else f"job-{kept}"[:100]


def _workdir(model: JobFile, defaults: Defaults, home: Path) -> tuple[Path, bool]:
    """Where it runs, and whether the code there is to be kept."""
    if model.workdir is None and defaults.workdir is None:
        if model.snapshot:
            raise ConfigError("snapshot: true needs a workdir to copy: name one.")
        return home, False
    path = _absolute("workdir", model.workdir or ".", defaults.workdir, home)
    return path, defaults.snapshot if model.snapshot is None else model.snapshot


def _checkpoint_dir(model: JobFile, workdir: Path, home: Path) -> str:
    """Empty: the manager chooses one."""
    if model.checkpoint_dir is None:
        return ""
    return str(_absolute("checkpoint_dir", model.checkpoint_dir, workdir, home))


def _absolute(field: str, text: str, base: Path | None, home: Path) -> Path:
    """`~` is the home of the job's user."""
    first, _, rest = text.partition("/")
    try:
        path = home / rest if first == "~" else Path(text).expanduser()
    except RuntimeError:
        raise ConfigError(f"{field} {text} names the home of an unknown user.") from None
    if not path.is_absolute():
        if base is None:
            raise ConfigError(f"{field} must be an absolute path here, not {text!r}.")
        path = base / path
    return Path(os.path.normpath(path))
