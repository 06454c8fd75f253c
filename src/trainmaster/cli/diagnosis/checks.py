"""The checks: each looks at the facts and says what it finds, in one sentence, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from trainmaster.cli.diagnosis.facts import Answer, Facts, FileSystem
from trainmaster.engines.local.cgroup_probe import UNFILTERED
from trainmaster.text.formatting import first_of, plural, size

GIB = 1 << 30
LOW_SPACE, NO_SPACE = 5 * GIB, GIB
LOW_INODES = 10_000
FEW_FILES, MANY_FILES = 1024, 4096
SMALL_SHM = GIB
LARGE_STORE = 4 * GIB
LARGE_LOG = GIB
DAY_S = 86_400.0
OLD_BACKUP_S = 7 * DAY_S
OLD_COPY_S = DAY_S
AHEAD_MS = 60_000
SOON_DAYS = 14
SLOW_FSYNC_S = 1.0
LEAST_PYTHON = (3, 11)
NAMED = 5
NETWORK = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "ceph",
        "gpfs",
        "beegfs",
        "glusterfs",
        "9p",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "afs",
        "wekafs",
        "fhgfs",
    )
)
"""File systems on which a lock or a write of another machine may be seen late, or not at all."""


class Verdict(Enum):
    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    verdict: Verdict
    sentence: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """What a check says, to which the table adds its name."""

    verdict: Verdict
    sentence: str
    advice: str = ""


def ok(sentence: str) -> Said:
    return Said(Verdict.OK, sentence)


def warning(sentence: str, advice: str) -> Said:
    return Said(Verdict.WARNING, sentence, advice)


def fault(sentence: str, advice: str) -> Said:
    return Said(Verdict.FAULT, sentence, advice)


Check = Callable[[Facts], Said | None]
"""None: there is nothing to look at."""


# -- the machine ---------------------------------------------------------------------------------------


def python(facts: Facts) -> Said:
    found = ".".join(map(str, facts.machine.python))
    if facts.machine.python < LEAST_PYTHON:
        return fault(f"Python {found} is too old.", "Install Python 3.11 or later.")
    return ok(f"Python {found}, {facts.machine.kernel}.")


def interpreter(facts: Facts) -> Said | None:
    if not facts.folder.serves_users:
        return None
    if facts.machine.interpreter_remark:
        return fault(
            facts.machine.interpreter_remark,
            "Install it with a Python that everybody can run: `make setup PYTHON=/usr/bin/python3`"
            " in a new checkout.",
        )
    return ok("Every user can run this Python.")


def control_groups(facts: Facts) -> Said:
    remarks = facts.machine.cgroup_remarks
    has_gpus = bool(facts.gpus.devices) or facts.gpus.has_device_files
    if has_gpus and not facts.machine.filters_devices:
        remarks = (*remarks, UNFILTERED)
    if not remarks:
        apart = ", and keep each job to its GPUs" if has_gpus else ""
        return ok(f"Control groups limit the host memory and CPUs of jobs{apart}.")
    return warning(
        " ".join(remarks),
        "Make the manager a systemd service (systemd 254 or later; docs/operations.md).",
    )


def open_files(facts: Facts) -> Said:
    found = facts.machine.open_files
    if found < FEW_FILES:
        return fault(
            f"A process may have only {found} files open.",
            "Raise the hard limit: `ulimit -Hn 65536`, or LimitNOFILE= of the service.",
        )
    if found < MANY_FILES:
        return warning(
            f"A process may have only {found} files open: enough for a few hundred jobs.",
            "Raise the hard limit: `ulimit -Hn 65536`, or LimitNOFILE= of the service.",
        )
    return ok(f"A process may have {found:,} files open.")


def shared_memory(facts: Facts) -> Said | None:
    if facts.machine.shm is None:
        return warning(
            "There is no /dev/shm, which data loaders with workers need.", "Mount a tmpfs there."
        )
    found = facts.machine.shm_bytes
    if found < SMALL_SHM:
        return warning(
            f"/dev/shm has only {size(found)}: data loaders with workers may fail in it.",
            "Make it larger: `mount -o remount,size=50% /dev/shm`, or --shm-size of the container.",
        )
    return ok(f"/dev/shm has {size(found)}.")


def stacks(facts: Facts) -> Said:
    if not facts.machine.has_py_spy:
        return warning(
            "Python stacks of hung jobs cannot be read: py-spy is not installed.",
            "pip install 'trainmaster[stacks]'",
        )
    if (facts.machine.ptrace_scope or 0) >= 2:
        return warning(
            "Stacks of hung jobs cannot be read: the kernel forbids it (ptrace_scope"
            f" {facts.machine.ptrace_scope}).",
            "sysctl kernel.yama.ptrace_scope=1",
        )
    return ok("Stacks of hung jobs can be read.")


def containers(facts: Facts) -> Said:
    found = facts.machine.containers
    if not found:
        return ok("No container runtime is installed: jobs with `container` would be refused.")
    return ok(f"Containers: {', '.join(found)}.")


# -- the data folder -----------------------------------------------------------------------------------


def data_folder(facts: Facts) -> Said:
    folder = facts.folder
    if not folder.exists:
        return fault(
            f"There is no data folder {folder.path}.",
            "Name it with --data; for a new manager start `trainmaster up`.",
        )
    if folder.owner != folder.user and folder.user != 0:
        return fault(
            f"{folder.path} belongs to the user with the id {folder.owner}.",
            "Ask that user, or name your own with --data.",
        )
    if not folder.is_writable:
        return fault(
            f"{folder.path} cannot be written.", "Give its owner the right to write, or more disk."
        )
    if (folder.mode or 0) & 0o022:
        return fault(
            f"Others can change the data folder {folder.path} (mode {folder.mode:04o}): they could put their"
            " own store and runs there.",
            f"chmod go-w {folder.path}",
        )
    return ok(f"The data folder is {folder.path}.")


def disk_space(facts: Facts) -> Said | None:
    place = facts.folder.file_system
    if place is None:
        return None
    if place.free < NO_SPACE:
        return fault(
            f"Only {size(place.free)} are free for the data folder: jobs cannot be started.",
            "Make room, or move the folder.",
        )
    if place.free < LOW_SPACE:
        return warning(f"Only {size(place.free)} are free for the data folder.", "Make room.")
    return ok(f"{size(place.free)} are free for the data folder.")


def inodes(facts: Facts) -> Said | None:
    place = facts.folder.file_system
    if place is None or place.inodes_free is None:
        return None
    if place.inodes_free < LOW_INODES:
        return fault(
            f"Only {place.inodes_free:,} more files can be made where the data folder is.",
            "Remove small files there.",
        )
    return ok(f"{place.inodes_free:,} more files can be made.")


def network_disk(facts: Facts) -> Said | None:
    place = facts.folder.file_system
    if place is None:
        return None
    if place.kind not in NETWORK:
        return ok(f"The data folder is on a local disk ({place.kind or 'unknown'}).")
    if facts.store.is_on_server:
        return warning(
            f"The data folder is on {place.kind}: locks of runs may not hold there.",
            "Keep it on a local disk of the machine that runs the jobs.",
        )
    return fault(
        f"The SQLite store is on {place.kind}, where it can be damaged.",
        "Move the data folder to a local disk, or use PostgreSQL (--database).",
    )


def exposed_files(facts: Facts) -> Said | None:
    if not facts.folder.exists:
        return None
    if facts.folder.exposed:
        named = first_of(facts.folder.exposed, NAMED)
        return fault(
            f"Other users can read {named}, with the environment of jobs.",
            f"chmod go= {facts.folder.path}/{facts.folder.exposed[0]}; the next start does it too.",
        )
    return ok("Nobody else can read the state.")


def token_file(facts: Facts) -> Said | None:
    mode = facts.folder.token_mode
    if mode is None:
        return None
    if mode & 0o077:
        return fault(
            f"admin-token has the mode {mode:04o}: others of its group or machine can be admin.",
            "Restart the manager: it withdraws this token and writes a new one.",
        )
    return ok("admin-token is readable by its user alone.")


def log_size(facts: Facts) -> Said | None:
    if facts.folder.log_bytes > LARGE_LOG:
        return warning(
            f"The manager's logs have {size(facts.folder.log_bytes)}.",
            "See what repeats in manager.log; remove manager.log.* that are not needed.",
        )
    return ok(f"The manager's logs have {size(facts.folder.log_bytes)}.")


def restored(facts: Facts) -> Said | None:
    if not facts.folder.restored:
        return None
    return warning(
        "A backup was restored, and no manager was started since.",
        "Start `trainmaster up`: it takes over what is newer than the backup.",
    )


def _answer(facts: Facts) -> Answer | None:
    """What the folder's own manager says; another one may answer at the usual port."""
    found = facts.manager
    said = found.by_socket or (found.by_port if found.address == "alive" else None)
    return said if said is not None and said.is_ours else None


# -- the store -----------------------------------------------------------------------------------------


def store(facts: Facts) -> Said | None:
    found = facts.store
    if not facts.folder.exists or found.problem:
        return None
    if not found.is_there and not found.trouble:
        if found.mark_seq or facts.runs.alive or found.unknown_runs:
            return fault(
                f"The database {found.url} is missing, and the folder was used with one.",
                "Put it back, or start `trainmaster up --adopt` (docs/manager.md).",
            )
        return ok("There is no database yet: the first start makes it.")
    if found.trouble:
        return fault(found.trouble, "See the sentence; `trainmaster up` waits for a server.")
    if found.bytes is not None and found.bytes > LARGE_STORE:
        return warning(
            f"The database has {size(found.bytes)}.",
            "A copy of it is made every hour: see that the disk has room, or use PostgreSQL.",
        )
    held = f", {size(found.bytes)}" if found.bytes is not None else ""
    return ok(f"The database {found.url} can be read{held}.")


def store_damage(facts: Facts) -> Said | None:
    if facts.store.problem:
        return fault(
            f"The database is damaged: {facts.store.problem}.",
            "`trainmaster down`, then `trainmaster up --adopt`, or restore a backup.",
        )
    return ok("The database has no damage.") if facts.store.schema else None


def store_schema(facts: Facts) -> Said | None:
    found = facts.store
    if found.schema is None:
        return None
    if not found.knows_schema:
        return fault(
            f"The database has schema version {found.schema} of a newer Trainmaster; this one knows"
            f" {found.newest_schema}.",
            "Upgrade this program.",
        )
    if found.schema != found.newest_schema:
        return warning(
            f"The database has schema version {found.schema}, and this program {found.newest_schema}.",
            "The next `trainmaster up` of this version brings it up to date, and keeps a copy.",
        )
    return ok(f"The database has schema version {found.schema}, as this program.")


def store_of_folder(facts: Facts) -> Said | None:
    found, folder = facts.store, facts.folder
    if found.schema is None or found.schema != found.newest_schema or found.trouble:
        return None
    if folder.home and found.home and folder.home != found.home:
        return fault(
            f"The database {found.url} belongs to another data folder.",
            "Name its own folder with --data, or the folder's own database with --database.",
        )
    if found.mark_store and found.store and found.mark_store != found.store:
        return fault(
            "The data folder was used with another database than this one.",
            "Name that one with --database, or see `up --adopt` in docs/manager.md.",
        )
    if found.seq < found.mark_seq:
        return fault(
            f"The database is older (step {found.seq}) than the data folder (step {found.mark_seq}).",
            "Put the newest one back, or start `trainmaster up --adopt`.",
        )
    if found.unknown_runs:
        return fault(
            f"The data folder has runs that the database does not know:"
            f" {first_of(found.unknown_runs, NAMED)}.",
            "Start `trainmaster up --adopt` to take them over.",
        )
    return ok("Store and data folder belong together.")


def store_lease(facts: Facts) -> Said | None:
    said = _answer(facts)
    if facts.store.is_led is None or said is None:
        return None
    if said.role == "active" and not facts.store.is_led:
        return fault(
            "The manager leads, and nobody holds the lock of its database: a second one could lead too.",
            "Restart the manager; see who removes files of the data folder.",
        )
    return ok("One manager leads the database.") if facts.store.is_led else None


def last_backup(facts: Facts) -> Said | None:
    found = facts.store
    if found.schema is None:
        return None
    if found.backup_age_s is not None and found.backup_age_s <= OLD_BACKUP_S:
        return ok(f"The last backup is {_days(found.backup_age_s)} old.")
    never = "No backup was ever made"
    if found.backup_age_s is not None:
        never = f"The last backup is {_days(found.backup_age_s)} old"
    is_copied = found.copy_age_s is not None and found.copy_age_s <= OLD_COPY_S
    copies = "" if not is_copied else "; automatic copies are on the same disk"
    return warning(f"{never}{copies}.", "trainmaster backup --to A_PLACE_ON_ANOTHER_DISK")


def _days(age_s: float) -> str:
    return plural(round(age_s / DAY_S), "day") if age_s >= DAY_S else "less than a day"


# -- the manager ---------------------------------------------------------------------------------------


def address(facts: Facts) -> Said | None:
    found = facts.manager
    if found.address == "unreadable":
        return fault(
            "The file `address` of the data folder cannot be read: clients do not find the manager.",
            "Restart the manager, which writes it again.",
        )
    if found.address == "dead" and found.processes:
        return fault(
            f"The file `address` names process {found.pid}, which has ended, while process"
            f" {found.processes[0]} uses the folder.",
            "Wait for that one to lead, or stop it and start the manager again.",
        )
    if found.address == "dead":
        return warning(
            f"The manager (process {found.pid}) has ended without a word: it was killed, or the"
            " machine restarted.",
            "Start `trainmaster up`: jobs go on meanwhile, and it finds them.",
        )
    if found.address == "none" and found.processes:
        return fault(
            f"Process {found.processes[0]} uses the data folder, and its file `address` is missing: clients"
            " do not find the manager.",
            "Restart the manager, which writes it again; one that waits or stands by has none.",
        )
    if found.address == "none":
        return ok("No manager runs on this data folder.")
    return ok(f"The manager is process {found.pid}, at {found.url}.")


def manager_answers(facts: Facts) -> Said | None:
    found = facts.manager
    if found.address != "alive":
        return None
    if found.socket and found.by_socket is None:
        return fault(
            f"The manager (process {found.pid}) does not answer on its socket {found.socket}.",
            f"See manager.log; if it stands still, `kill -9 {found.pid}` and start it again: jobs go on.",
        )
    if found.by_port is None:
        return fault(
            f"The manager (process {found.pid}) does not answer at {found.url}.",
            "See manager.log; a firewall or a proxy may be in between.",
        )
    if found.socket:
        return ok("The manager answers on its socket and its port.")
    return ok("The manager answers on its port.")


def port(facts: Facts) -> Said | None:
    found = facts.manager
    others = [user for user in found.port_users if user not in (facts.folder.owner, 0)]
    if others:
        return fault(
            f"Port {found.port} is taken by a program of the user with the id {others[0]}: clients"
            " that trust the port alone would speak to it.",
            "Use the Unix socket (the default on this machine), or another --port.",
        )
    if found.port_users and found.by_port is not None and not found.by_port.is_ours:
        return warning(
            f"Port {found.port} is taken by another program.",
            "The manager takes the next free port; or name one with --port.",
        )
    return ok(f"Port {found.port} is the manager's, or free.")


def stale_sockets(facts: Facts) -> Said | None:
    if facts.manager.stale_sockets:
        return warning(
            f"Nobody listens on {first_of(facts.manager.stale_sockets, NAMED)}.",
            "Start the manager, which replaces it, or remove the file.",
        )
    return ok("No socket is left behind.")


def manager_health(facts: Facts) -> Said | None:
    said = _answer(facts)
    if said is None:
        return None
    if said.trouble:
        return fault(f"The manager cannot work: {said.trouble}", "See what it says.")
    if said.notes:
        more = f" (and {len(said.notes) - 1} more)" if len(said.notes) > 1 else ""
        return warning(f"{said.notes[0]}{more}", "`trainmaster status` shows all of it.")
    age = "" if said.step_age_s is None else f", its last step {said.step_age_s:,.0f} s ago"
    return ok(f"The manager works ({said.role}{age}).")


def manager_version(facts: Facts) -> Said | None:
    said = _answer(facts)
    if said is None:
        return None
    if said.version != facts.manager.own_version:
        return warning(
            f"The manager is version {said.version}, and this program {facts.manager.own_version}.",
            "Restart the manager with the version that is installed; jobs go on.",
        )
    return ok(f"Manager and program are version {said.version}.")


def certificate(facts: Facts) -> Said | None:
    found = facts.manager
    if found.certificate_trouble:
        return fault(
            f"The certificate of {found.url} is not valid: {found.certificate_trouble}.",
            "Put a new one in place and restart the manager; clients that pin it must pin the new one.",
        )
    if found.certificate_days is None:
        return None
    if found.certificate_days < SOON_DAYS:
        return warning(
            f"The certificate of {found.url} ends in {plural(int(found.certificate_days), 'day')}.",
            "Put a new one in place and restart the manager.",
        )
    return ok(f"The certificate is valid for {plural(int(found.certificate_days), 'day')}.")


# -- clocks --------------------------------------------------------------------------------------------


def clock(facts: Facts) -> Said | None:
    newest = facts.store.newest_ms
    if newest is None:
        return None
    ahead_ms = newest - facts.machine.now_ms
    if ahead_ms > AHEAD_MS:
        return fault(
            f"The clock of this machine is {ahead_ms / 1000:,.0f} s behind the newest time in the"
            " store: it was set back.",
            "Set the clock; times of jobs stand still until it has caught up.",
        )
    return ok("The clock is not behind the store.")


def time_server(facts: Facts) -> Said | None:
    found = facts.machine.clock_is_synchronised
    if found is None:
        return None
    if not found:
        return warning(
            "The clock is not synchronised by a time server.",
            "Run chrony or systemd-timesyncd; several machines need the same time.",
        )
    return ok("The clock is synchronised.")


# -- GPUs ----------------------------------------------------------------------------------------------


def gpu_driver(facts: Facts) -> Said:
    found = facts.gpus
    if found.trouble:
        return fault(
            f"The GPU driver does not answer: {found.trouble}.",
            "See whether `nvidia-smi` works; after an upgrade of the driver, restart the machine.",
        )
    if found.has_device_files and not found.devices:
        return fault(
            "There are device files of GPUs, and the driver shows none.",
            "See `nvidia-smi` and CUDA_VISIBLE_DEVICES; in a container pass the GPUs through.",
        )
    if not found.devices:
        return ok("There are no GPUs: jobs run on CPU slots.")
    return ok(f"{plural(len(found.devices), 'GPU')}, driver {found.driver}.")


def gpu_errors(facts: Facts) -> Said | None:
    for gpu in facts.gpus.devices:
        if gpu.trouble:
            return fault(f"{gpu.name} {gpu.uuid} does not answer: {gpu.trouble}.", "Restart it.")
        if gpu.ecc_errors:
            return fault(
                f"{gpu.name} {gpu.uuid} had {plural(gpu.ecc_errors, 'uncorrected memory error')}.",
                "`trainmaster node block` takes it out of service; reset or replace it.",
            )
    return ok("No GPU reports errors.") if facts.gpus.devices else None


def gpu_persistence(facts: Facts) -> Said | None:
    off = [gpu for gpu in facts.gpus.devices if gpu.persistence is False]
    if off:
        return warning(
            f"Persistence mode is off on {plural(len(off), 'GPU')}: the first job after a pause"
            " waits for the driver.",
            "nvidia-smi -pm 1, or the service nvidia-persistenced",
        )
    return ok("Persistence mode is on.") if facts.gpus.devices else None


def gpu_slices(facts: Facts) -> Said | None:
    sliced = [gpu for gpu in facts.gpus.devices if gpu.has_slices]
    if not sliced:
        return None
    return ok(f"{plural(len(sliced), 'MIG slice')}: jobs on them are not suspended in memory.")


def gpu_other_programs(facts: Facts) -> Said | None:
    found = [(gpu, pid, used) for gpu in facts.gpus.devices for pid, used in gpu.others]
    if not found:
        return ok("No other program uses a GPU.") if facts.gpus.devices else None
    gpu, pid, used = found[0]
    more = f", and {plural(len(found) - 1, 'other')}" if len(found) > 1 else ""
    return warning(
        f"Process {pid}, which no job started, has {size(used)} on {gpu.name}{more}.",
        "End it, or leave the GPU out: CUDA_VISIBLE_DEVICES of the manager says which it uses.",
    )


def gpu_suspending(facts: Facts) -> Said | None:
    if not facts.gpus.devices:
        return None
    if not facts.gpus.has_cuda_core:
        return warning(
            "Programs cannot be suspended on GPUs: cuda-core is not installed.",
            "pip install 'trainmaster[gpu]'",
        )
    return ok("Programs can be suspended on GPUs.")


def gpu_sharing(facts: Facts) -> Said | None:
    if not facts.gpus.devices:
        return None
    if not facts.gpus.has_mps:
        return warning(
            "Jobs share a GPU by time-slicing only: nvidia-cuda-mps-control is not installed.",
            "Install it with NVIDIA's driver packages.",
        )
    return ok("Jobs can share a GPU by MPS.")


# -- runs and their folders ----------------------------------------------------------------------------


def cluster(facts: Facts) -> Said | None:
    found = facts.cluster
    if found is None:
        return None
    if not found.has_client:
        return fault(
            "The manager was last started on a Ray cluster, and Ray is not installed here.",
            "Install it: pip install 'ray[default]', the same version as on the nodes.",
        )
    if not found.answers:
        where = f" at {found.address}" if found.address else ""
        return fault(
            f"The Ray cluster{where} does not answer: runs on it end when its head is away for long.",
            "Start its head again, or name another one: `trainmaster up --engine ray --address HOST:PORT`.",
        )
    if found.refusal:
        advice = "The shell or the service that starts the manager needs the same."
        return (fault if _answer(facts) is None else warning)(found.refusal, advice)
    return ok(f"The Ray cluster at {found.address} answers.")


def leftover_runs(facts: Facts) -> Said | None:
    runs = facts.runs
    if runs.leftover:
        return fault(
            f"Processes go on of runs that the store does not have as running:"
            f" {first_of(runs.leftover, NAMED)}.",
            "The manager ends or adopts them at its start: `trainmaster up`, or `up --adopt`.",
        )
    if runs.alive and not facts.manager.processes:
        return warning(
            f"{plural(len(runs.alive), 'run')} without a manager: {first_of(runs.alive, NAMED)}.",
            "Start `trainmaster up`: it takes them over.",
        )
    return ok(f"{plural(len(runs.alive), 'run')}, none left behind.")


def missing_runs(facts: Facts) -> Said | None:
    if not facts.runs.missing:
        return None
    return warning(
        f"Of {first_of(facts.runs.missing, NAMED)} no process is left, and no manager has noted it.",
        "Start `trainmaster up`: it says that they were lost, and tries them again.",
    )


def job_folders(facts: Facts) -> Said | None:
    for place in facts.places:
        if place.trouble:
            return fault(
                f"The {place.what} {place.path} of job {first_of(place.jobs, NAMED)} {place.trouble}.",
                "Put it back, or cancel the job.",
            )
    return (
        ok(f"{plural(len(facts.places), 'folder')} of jobs can be used.") if facts.places else None
    )


def shared_storage(facts: Facts) -> Said | None:
    for place in facts.places:
        if _is_soft(place.file_system):
            return fault(
                f"{place.path} of job {first_of(place.jobs, NAMED)} is on a network disk that is mounted"
                " `soft`: a write may be lost without an error.",
                "Mount it `hard`.",
            )
    times = {each.path: each.fsync_s for each in facts.places if each.fsync_s is not None}
    worst = max(times, key=times.__getitem__, default="")
    if times.get(worst, 0.0) > SLOW_FSYNC_S:
        return warning(
            f"A small write to {worst} takes {times[worst]:.1f} s until it is on the disk.",
            "See what else uses the disk: checkpoints take long.",
        )
    return ok("Disks of jobs answer in time.") if facts.places else None


def _is_soft(place: FileSystem | None) -> bool:
    return place is not None and place.kind in NETWORK and "soft" in place.options


CHECKS: Mapping[str, Check] = {
    "python": python,
    "interpreter": interpreter,
    "control-groups": control_groups,
    "open-files": open_files,
    "shared-memory": shared_memory,
    "stacks": stacks,
    "containers": containers,
    "data-folder": data_folder,
    "disk-space": disk_space,
    "inodes": inodes,
    "network-disk": network_disk,
    "exposed-files": exposed_files,
    "token-file": token_file,
    "log-size": log_size,
    "store": store,
    "store-damage": store_damage,
    "store-schema": store_schema,
    "store-of-folder": store_of_folder,
    "store-lease": store_lease,
    "last-backup": last_backup,
    "restored": restored,
    "address": address,
    "manager-answers": manager_answers,
    "manager-health": manager_health,
    "manager-version": manager_version,
    "port": port,
    "stale-sockets": stale_sockets,
    "certificate": certificate,
    "clock": clock,
    "time-server": time_server,
    "gpu-driver": gpu_driver,
    "gpu-errors": gpu_errors,
    "gpu-persistence": gpu_persistence,
    "gpu-slices": gpu_slices,
    "gpu-other-programs": gpu_other_programs,
    "gpu-suspending": gpu_suspending,
    "gpu-sharing": gpu_sharing,
    "cluster": cluster,
    "leftover-runs": leftover_runs,
    "missing-runs": missing_runs,
    "job-folders": job_folders,
    "shared-storage": shared_storage,
}


def findings(facts: Facts) -> Iterator[Finding]:
    """What every check says, in the order of the table."""
    for name, check in CHECKS.items():
        said = check(facts)
        if said is not None:
            yield Finding(name, said.verdict, said.sentence, said.advice)
