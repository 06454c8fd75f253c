"""Jobs that run as their own Unix users under an engine of root: who they are, and what they cannot touch."""

from __future__ import annotations

import asyncio
import grp
import os
import signal
import stat
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.live.stage import Stage, is_last, placed, until
from tests.live.unix_users import as_user, shared_folder, unix_user
from trainmaster.engines.local import runfile, socket_paths
from trainmaster.engines.local.engine import LocalEngine
from trainmaster.engines.local.ownership import CHECKPOINTS
from trainmaster.engines.local.privileges import identity
from trainmaster.engines.local.runfile import CgroupPlan
from trainmaster.model.actions import Freeze, Halt, Kill, Launch, Thaw
from trainmaster.model.engine_reports import Ended, Frozen, Lost, Thawed
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import Account, LaunchSpec
from trainmaster.model.topology import parse_shorthand

pytestmark = pytest.mark.live
RUN, OTHER = Run("12", 1), Run("13", 1)


@dataclass(frozen=True)
class Place:
    """A manager's folder, and two users of its machine."""

    folder: Path
    ada: Account
    bob: Account

    def shell(self, account: Account, script: str, run: Run = RUN) -> LaunchSpec:
        return LaunchSpec(
            command=("sh", "-c", script),
            workdir=account.home,
            checkpoint_dir=str(self.folder / "jobs" / run.job / CHECKPOINTS),
            account=account,
            uuid=f"uuid-{run.job}",
            counts_steps=False,
        )


@pytest.fixture(scope="module")
def users() -> Iterator[tuple[Account, Account]]:
    with shared_folder() as base, unix_user(base) as ada, unix_user(base) as bob:
        yield ada, bob


@pytest.fixture
def place(users: tuple[Account, Account]) -> Iterator[Place]:
    with shared_folder() as folder:
        yield Place(folder, *users)


def engine_for_users(folder: Path) -> LocalEngine:
    return LocalEngine(folder, parse_shorthand("2x4"), serves_users=True)


def perform(place: Place, act: Callable[[Stage], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        async with Stage(place.folder, engine_for_users) as stage:
            await act(stage)

    asyncio.run(all_of_it())


def test_a_job_is_its_user_in_all_ways(place: Place) -> None:
    """User, groups, variables, folder, rights of its files; and the same for what it starts."""
    script = (
        "id -u; id -g; id -G; umask; pwd; echo $HOME $USER $LOGNAME $SHELL $TMPDIR;"
        " cat /proc/self/status | grep -E '^(CapEff|CapPrm|CapAmb)'; echo $(ls /proc/self/fd);"
        " echo to-the-terminal > /dev/stdout;"
        " touch made; (setsid sh -c 'id -u > of-child'); echo weights > $TRAINMASTER_CHECKPOINT_DIR/model"
    )

    async def act(stage: Stage) -> None:
        await stage.launch(RUN, replace(place.shell(place.ada, script), umask=0o027))
        over = await stage.ended(RUN)
        said = stage.log(RUN).decode().splitlines()
        assert over.code == 0, said
        ada = place.ada
        none = "0000000000000000"
        assert said == [
            *(str(ada.uid), str(ada.gid), f"{ada.gid} {grp.getgrnam('users').gr_gid}"),
            *("0027", ada.home),
            f"{ada.home} {ada.name} {ada.name} /bin/bash",
            *(f"CapPrm:\t{none}", f"CapEff:\t{none}", f"CapAmb:\t{none}"),
            "0 1 2 3",  # the last is of ls itself
            "to-the-terminal",
        ]
        made, of_child = Path(ada.home, "made"), Path(ada.home, "of-child")
        assert (made.stat().st_uid, made.stat().st_gid) == (ada.uid, ada.gid)
        assert stat.S_IMODE(made.stat().st_mode) == 0o640
        assert of_child.read_text() == f"{ada.uid}\n"
        model = place.folder / "jobs" / RUN.job / CHECKPOINTS / "model"
        assert model.stat().st_uid == ada.uid
        assert stat.S_IMODE(model.parent.stat().st_mode) == 0o700
        assert model.parent.parent.stat().st_uid == 0

    perform(place, act)


def test_its_log_and_record_are_in_a_folder_that_it_can_neither_read_nor_change(
    place: Place,
) -> None:
    async def act(stage: Stage) -> None:
        folder = stage.engine.folder_of(RUN)
        script = f"ls {folder}; cat {folder}/run.json; mv {folder.parent} /tmp/gone; echo tried"
        await stage.launch(RUN, place.shell(place.ada, script))
        await stage.ended(RUN)
        said = stage.log(RUN).decode().splitlines()
        assert said[-1] == "tried"
        assert all("ermission denied" in line for line in said[:-1]), said
        for name in ("run.json", "journal.jsonl", "rank-0.log"):
            assert (folder / name).stat().st_uid == 0

    perform(place, act)


def test_a_job_cannot_reach_the_job_of_another_user(place: Place) -> None:
    """Neither its processes nor its environment, checkpoints or socket; its own it can."""

    async def act(stage: Stage) -> None:
        bobs = replace(
            place.shell(place.bob, "echo s > $TRAINMASTER_CHECKPOINT_DIR/model; sleep 600", OTHER),
            env=(("SECRET", "of-bob"),),
        )
        started = await stage.up(OTHER, bobs)
        (pid,) = started.pids
        model = Path(bobs.checkpoint_dir, "model")
        await until(model.exists)
        socket = runfile.socket_of(str(stage.engine.folder_of(OTHER)))
        connect = (
            "import os, socket, sys\n"
            "for path in sys.argv[1:]:\n"
            "    try:\n"
            "        socket.socket(socket.AF_UNIX).connect(path); print('connected')\n"
            "    except OSError as no: print(no.strerror)\n"
        )
        script = (
            f"kill -9 {pid}; cat /proc/{pid}/environ; ls {model.parent}; cat {model};"
            f" ls {os.path.dirname(str(socket))};"
            f' /usr/bin/python3 -c "{connect}" {socket} $TRAINMASTER_SOCKET;'
            f" readlink -v /proc/{pid}/cwd; head -c1 /proc/{pid}/mem"
        )
        await stage.launch(RUN, place.shell(place.ada, script))
        await stage.ended(RUN)
        said = stage.log(RUN).decode()
        lines = [line for line in said.splitlines() if line not in ("", "connected")]
        assert all("ermi" in line for line in lines), said  # permission, permitted
        assert len(lines) == 8, said
        assert said.count("connected") == 1, "its own supervisor it reaches"
        os.kill(pid, 0)
        await stage.order(Kill(OTHER), bobs)
        await stage.ended(OTHER)

    perform(place, act)


def test_another_users_processes_are_frozen_thawed_halted_and_swept(place: Place) -> None:
    """Also those that hide in a session and an environment of their own."""
    hiding = 'env -i setsid sh -c "(sleep 622 &)"'
    script = f'trap "exit 0" TERM; {hiding}; echo up; while :; do sleep 0.1; done'

    async def act(stage: Stage) -> None:
        spec = place.shell(place.ada, script)
        started = await stage.up(RUN, spec)
        await until(lambda: b"up" in stage.log(RUN))
        await stage.order(Freeze(RUN), spec)
        await stage.heard(RUN, Frozen)
        state = Path(f"/proc/{started.pids[0]}/stat").read_text().rpartition(")")[2].split()[0]
        assert state == "T"
        await stage.order(Thaw(RUN), spec)
        await stage.heard(RUN, Thawed)
        await stage.order(Halt(RUN), spec)
        await stage.ended(RUN)
        assert processes_of(place.ada) == []

    perform(place, act)


def test_nothing_is_left_of_another_users_run_whose_supervisor_is_killed(place: Place) -> None:
    hiding = 'env -i setsid sh -c "(sleep 623 &)"'

    async def act(stage: Stage) -> None:
        started = await stage.up(RUN, place.shell(place.ada, f"{hiding}; echo up; sleep 624"))
        await until(lambda: b"up" in stage.log(RUN))
        assert processes_of(place.ada)
        os.kill(parent_of(started.pids[0]), signal.SIGKILL)
        await stage.heard(RUN, Lost)
        await until(lambda: not processes_of(place.ada))

    perform(place, act)


def test_what_a_halted_job_saved_is_looked_at_as_its_user(place: Place) -> None:
    """Its checkpoint folder may be where root sees nothing; here it is a link to where only root may look."""
    secret = place.folder / "roots"
    secret.mkdir(mode=0o700)
    script = 'trap "sleep 1; exit 0" TERM; echo up; while :; do sleep 0.1; done'

    async def act(stage: Stage) -> None:
        for run, account_can_look in ((RUN, True), (OTHER, False)):
            folder = Path(place.ada.home, f"saves-{run.job}")
            as_user(
                place.ada, f"mkdir {folder}" if account_can_look else f"ln -s {secret} {folder}"
            )
            spec = replace(place.shell(place.ada, script, run), checkpoint_dir=str(folder))
            await stage.up(run, spec)
            await until(lambda run=run: b"up" in stage.log(run))  # type: ignore[misc]
            (folder / "model").write_text("weights")
            await stage.order(Halt(run), spec)
            over = await stage.ended(run)
            assert over.has_left is account_can_look

    perform(place, act)


def test_the_checkpoint_folder_cannot_be_exchanged(place: Place) -> None:
    """Its user can empty it, but put no link in its place; where there is one, no run follows it."""
    script = (
        "rmdir $TRAINMASTER_CHECKPOINT_DIR && ln -s /etc $TRAINMASTER_CHECKPOINT_DIR;"
        " mv $TRAINMASTER_CHECKPOINT_DIR /tmp/mine; ls -ld $TRAINMASTER_CHECKPOINT_DIR"
    )

    async def act(stage: Stage) -> None:
        spec = place.shell(place.ada, script)
        await stage.launch(RUN, spec)
        await stage.ended(RUN)
        said = stage.log(RUN).decode().splitlines()
        assert all("ermission denied" in line for line in said[:2])
        assert said[2].startswith(f"drwx------ 2 {place.ada.name}")

    perform(place, act)


def test_a_folder_that_its_user_cannot_enter_is_told(place: Place) -> None:
    async def act(stage: Stage) -> None:
        spec = replace(place.shell(place.ada, "true"), workdir=place.bob.home)
        await stage.launch(RUN, spec)
        over = await stage.ended(RUN)
        assert over.code == 126
        assert over.why == (
            f"The working directory {place.bob.home} cannot be used: permission denied; correct"
            " `workdir` and submit it again."
        )

    perform(place, act)


def test_an_account_that_is_gone_or_another_by_now_is_not_used(place: Place) -> None:
    """Its number may have been given to another user: the job is lost, and not started as that one."""

    async def act(stage: Stage) -> None:
        stale = replace(place.ada, name="tmtest-gone")
        await stage.launch(RUN, place.shell(stale, "id"))
        lost = await stage.heard(RUN, Lost)
        assert lost.why == (
            "It could not be started as its user tmtest-gone: this machine has no account tmtest-gone"
            f" with the number {stale.uid} any more."
        )

    perform(place, act)


def test_a_prerun_has_folders_that_its_user_can_write(place: Place) -> None:
    code = place.folder / "jobs" / RUN.job / "code"
    code.mkdir(parents=True)
    (code / "train.sh").write_text("echo from-the-copy; touch $TRAINMASTER_CHECKPOINT_DIR/model")
    for path in (code, code / "train.sh"):
        os.chown(path, place.ada.uid, place.ada.gid)
    script = "sh train.sh; touch here; pwd; stat -c %U here $TRAINMASTER_CHECKPOINT_DIR/model"

    async def act(stage: Stage) -> None:
        spec = replace(place.shell(place.ada, script), workdir=str(code), prerun_ms=60_000)
        await stage.order(Launch(RUN, placed(1), 0, is_prerun=True), spec)
        over = await until(lambda: next(filter(is_last, stage.of(RUN)), None))
        assert isinstance(over, Ended)
        folder = place.folder / "jobs" / RUN.job / "prerun-1"
        assert stage.log(RUN).decode().splitlines() == [
            *("from-the-copy", f"{folder}/code", place.ada.name, place.ada.name),
        ]
        assert not folder.exists()
        assert not (code / "here").exists()

    perform(place, act)


def test_the_number_of_a_users_processes_is_limited_without_control_groups(place: Place) -> None:
    script = "for i in $(seq 60); do sleep 600 & done; echo all; wait"

    async def act(stage: Stage) -> None:
        assert isinstance(stage.engine, LocalEngine)
        stage.engine.host = replace(stage.engine.host, cgroups=CgroupPlan(), most_pids=20)
        await stage.launch(RUN, place.shell(place.ada, script))
        over = await stage.ended(RUN)
        assert over.code != 0
        assert "fork" in stage.log(RUN).decode()
        assert not processes_of(place.ada)

    perform(place, act)


def test_a_process_of_another_user_that_says_it_is_of_a_run_is_not_believed(place: Place) -> None:
    """Else who forwards a port of theirs would speak with a program of somebody else."""

    async def act(stage: Stage) -> None:
        spec = place.shell(place.ada, "sleep 600; true")
        rank = (await stage.up(RUN, spec)).pids[0]
        said = Path(f"/proc/{rank}/environ").read_bytes().split(b"\0")
        stated = dict(each.decode().partition("=")[::2] for each in said if each)
        for account, found in ((place.ada, RUN), (place.bob, None)):
            assert await believed(stage, account, stated) == found
        assert stage.engine.run_of(rank) == RUN
        next_socket = socket_paths.path_in("/", stage.engine.folder_of(Run(RUN.job, 2)))
        made_up = stated | {"TRAINMASTER_RUN": f"{RUN.job}.2", "TRAINMASTER_SOCKET": next_socket}
        assert await believed(stage, place.bob, made_up) is None
        await stage.order(Kill(RUN), spec)
        await stage.ended(RUN)

    perform(place, act)


def test_a_process_cannot_have_a_file_of_its_own_taken_for_a_run(place: Place) -> None:
    """It names a folder of its user as its run, with a pipe for the file, which would be waited for."""

    async def act(stage: Stage) -> None:
        evil = Path(place.bob.home) / "evil" / "1"
        evil.mkdir(parents=True)
        os.mkfifo(evil / "run.json")
        runs = stage.engine.folder_of(RUN).parent.parent
        for job in (os.path.relpath(evil.parent, runs), str(evil.parent)):
            named = {"TRAINMASTER_RUN": f"{job}.1"}
            named["TRAINMASTER_SOCKET"] = socket_paths.path_in("/", evil)
            try:
                assert await believed(stage, place.bob, named) is None
            finally:
                with suppress(OSError):  # nobody waits for it
                    os.close(os.open(evil / "run.json", os.O_WRONLY | os.O_NONBLOCK))

    perform(place, act)


def test_a_process_is_of_no_run_whose_file_cannot_be_read(place: Place) -> None:
    async def act(stage: Stage) -> None:
        spec = place.shell(place.ada, "sleep 600; true")
        rank = (await stage.up(RUN, spec)).pids[0]
        assert stage.engine.run_of(rank) == RUN
        file = Path(runfile.path_of(str(stage.engine.folder_of(RUN)), 0))
        written = file.read_bytes()
        file.write_text("{}")
        assert stage.engine.run_of(rank) is None
        file.write_bytes(written)
        await stage.order(Kill(RUN), spec)
        await stage.ended(RUN)

    perform(place, act)


def test_a_process_of_another_user_is_not_of_a_run_of_the_managers_own_account(
    place: Place,
) -> None:
    async def act(stage: Stage) -> None:
        spec = replace(place.shell(place.ada, "sleep 600; true"), account=None, workdir="/")
        rank = (await stage.up(RUN, spec)).pids[0]
        assert stage.engine.run_of(rank) == RUN
        said = Path(f"/proc/{rank}/environ").read_bytes().split(b"\0")
        stated = dict(each.decode().partition("=")[::2] for each in said if each)
        assert await believed(stage, place.bob, stated) is None
        await stage.order(Kill(RUN), spec)
        await stage.ended(RUN)

    perform(place, act)


async def believed(stage: Stage, account: Account, env: dict[str, str]) -> Run | None:
    """The run of a process that this user has started with these variables."""
    with subprocess.Popen(
        ("sh", "-c", "echo; exec sleep 600"),
        env=env | {"PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        **identity(account),
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()  # it has its variables now
        try:
            asked = asyncio.to_thread(stage.engine.run_of, other.pid)
            return await asyncio.wait_for(asked, 60)
        finally:
            other.kill()


def processes_of(account: Account) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "status").read_text()
            except OSError:
                continue
            if f"\nUid:\t{account.uid}\t" in status and "\nState:\tZ" not in status:
                found.append(int(entry.name))
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
