"""Which engine a manager uses: as it is stated, else as at the last start with its data folder."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from trainmaster.catalog import CatalogError, engine_maker, engine_names
from trainmaster.cli.support.remembered_file import kept_text
from trainmaster.config.units import duration_ms
from trainmaster.daemon.data_folder import home_of
from trainmaster.durable_files import write_whole
from trainmaster.engines.engine_settings import EngineChoice
from trainmaster.errors import BadInput, system_reason
from trainmaster.text.formatting import as_sentence

FILE = "engine.json"
"""In the data folder: what the command line said at the last start."""
LOCAL, RAY = "local", "ray"
CLIENT = "ray://"
LEAST_FENCE_S = 5.0
STORE_NAME = 12
"""Characters of the data folder's name that stand for it on other machines."""


def engine_choice(
    folder: Path,
    name: str | None,
    address: str | None,
    nodes: int | None,
    fence: str | None,
    slots: str | None,
) -> EngineChoice:
    last = remembered_engine(folder)
    choice = last if name in (None, last.name) else EngineChoice(name or LOCAL)
    try:
        engine_maker(choice.name)
    except CatalogError as error:
        raise BadInput(as_sentence(f"--engine {choice.name}: {error}")) from None
    except ImportError as error:
        raise BadInput(f"--engine {choice.name} cannot be loaded: {error}.") from None
    if choice.name == LOCAL:
        stated = {"--address": address, "--nodes": nodes, "--fence": fence}
        said = next((flag for flag, value in stated.items() if value is not None), None)
        if said is not None:
            raise BadInput(f"{said} is for an engine of several machines: say --engine {RAY}.")
        return choice
    return _of_cluster(choice, address, nodes, fence, slots)


def _of_cluster(
    choice: EngineChoice,
    address: str | None,
    nodes: int | None,
    fence: str | None,
    slots: str | None,
) -> EngineChoice:
    if address is not None and nodes is not None:
        raise BadInput(
            "--address names a cluster that is there, and --nodes starts one: say one of them."
        )
    if address is not None:
        if address.startswith(CLIENT):
            raise BadInput(
                f"--address {address} is of Ray Client, which is not used: start the manager on a node of the"
                " cluster, and give the address of its head as HOST:PORT, such as 10.0.0.1:6379."
            )
        if not address.rpartition(":")[0] or not address.rpartition(":")[2].isdecimal():
            raise BadInput(f"--address {address}: give it as HOST:PORT, such as 10.0.0.1:6379.")
        choice = replace(choice, address=address, nodes=None, slots=None)
    if nodes is not None:
        choice = replace(choice, address=None, nodes=nodes)
    if choice.address is None and choice.nodes is None:
        raise BadInput(
            f"--engine {choice.name} needs --address HOST:PORT of a cluster, or --nodes N to start one on"
            " this machine."
        )
    if slots is not None:
        if choice.nodes is None or not slots.isdecimal() or not int(slots):
            raise BadInput(
                "--slots with --engine ray is the number of CPU slots of each node that --nodes starts."
            )
        choice = replace(choice, slots=int(slots))
    return choice if fence is None else replace(choice, fence_s=_fence_s(fence))


def refuse_device_options(engine: str, *, gpu_memory: str | None, links: str | None) -> None:
    """Options about this machine's devices are not for an engine of several."""
    for flag, value in (("--gpu-memory", gpu_memory), ("--links", links)):
        if value is not None:
            raise BadInput(
                f"{flag} is about the devices of this machine: not with --engine {engine}."
            )


def store_name(folder: Path) -> str:
    """What the manager of this folder is called on the nodes of a cluster."""
    return home_of(folder)[:STORE_NAME]


def remember_engine(folder: Path, choice: EngineChoice) -> None:
    """For the next start."""
    if choice == EngineChoice():
        (folder / FILE).unlink(missing_ok=True)
    else:
        write_whole(folder / FILE, json.dumps(asdict(choice)))


def remembered_engine(folder: Path) -> EngineChoice:
    """What the manager of this folder was started with last."""
    try:
        return EngineChoice(**json.loads(kept_text(folder / FILE)))
    except FileNotFoundError:
        return EngineChoice()
    except (OSError, ValueError, TypeError) as error:
        why = system_reason(error) if isinstance(error, OSError) else "it is damaged"
        raise BadInput(
            f"{folder / FILE} cannot be read ({why}): remove it, and say --engine (one of"
            f" {', '.join(engine_names())})."
        ) from None


def _fence_s(said: str) -> float:
    try:
        seconds = duration_ms(said) / 1000
    except ValueError as error:
        raise BadInput(as_sentence(f"--fence {error}")) from None
    if seconds < LEAST_FENCE_S:
        raise BadInput(f"--fence must be at least {LEAST_FENCE_S:g}s, not {said}.")
    return seconds
