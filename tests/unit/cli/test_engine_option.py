"""Which engine a manager starts with: what is stated, else what its folder remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.catalog import ENGINES, engine_maker, engine_names
from trainmaster.cli.support.engine_option import (
    FILE,
    engine_choice,
    refuse_device_options,
    remember_engine,
    remembered_engine,
)
from trainmaster.engines.engine_settings import EngineChoice
from trainmaster.errors import BadInput

AT = "10.0.0.1:6379"


def chosen(
    folder: Path,
    name: str | None = None,
    address: str | None = None,
    nodes: int | None = None,
    fence: str | None = None,
    slots: str | None = None,
) -> EngineChoice:
    return engine_choice(folder, name, address, nodes, fence, slots)


def test_a_new_folder_has_the_engine_of_this_machine(tmp_path: Path) -> None:
    assert chosen(tmp_path) == EngineChoice("local")
    assert chosen(tmp_path, slots="2x4") == EngineChoice("local")


def test_a_cluster_is_named_by_its_address_or_started(tmp_path: Path) -> None:
    assert chosen(tmp_path, "ray", AT) == EngineChoice("ray", address=AT)
    assert chosen(tmp_path, "ray", nodes=4, slots="2", fence="2m") == EngineChoice(
        "ray", nodes=4, slots=2, fence_s=120.0
    )


def test_the_next_start_has_the_same_engine(tmp_path: Path) -> None:
    remember_engine(tmp_path, chosen(tmp_path, "ray", AT, fence="30s"))
    assert chosen(tmp_path) == EngineChoice("ray", address=AT, fence_s=30.0)
    assert chosen(tmp_path, fence="1m").fence_s == 60.0
    assert chosen(tmp_path, nodes=2) == EngineChoice("ray", nodes=2, fence_s=30.0)
    remember_engine(tmp_path, chosen(tmp_path, "local"))
    assert remembered_engine(tmp_path) == EngineChoice()
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"name": "rya"}, r"there is no engine 'rya'; did you mean.*ray"),
        ({"name": "kubernetes"}, r"there are local, ray\.$"),
        ({"name": "ray", "address": "ray://10.0.0.1:10001"}, r"Ray Client, which is not used"),
        ({"name": "ray"}, r"--engine ray needs --address HOST:PORT .* or --nodes N"),
        ({"name": "ray", "address": "host"}, r"--address host: give it as HOST:PORT"),
        ({"name": "ray", "address": AT, "nodes": 2}, r"say one of them"),
        ({"name": "ray", "address": AT, "slots": "2"}, r"--slots with --engine ray is"),
        ({"name": "ray", "nodes": 2, "slots": "2x2"}, r"--slots with --engine ray is"),
        ({"name": "ray", "address": AT, "fence": "1s"}, r"at least 5s, not 1s"),
        ({"name": "ray", "address": AT, "fence": "60"}, r"--fence must be a length of time"),
        ({"address": AT}, r"--address is for an engine of several machines"),
        ({"nodes": 2}, r"--nodes is for an engine of several machines"),
        ({"fence": "60s"}, r"--fence is for an engine of several machines"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    tmp_path: Path, stated: dict[str, object], says: str
) -> None:
    with pytest.raises(BadInput, match=says) as refusal:
        chosen(tmp_path, **stated)  # type: ignore[arg-type]
    assert str(refusal.value).endswith((".", "?"))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    with pytest.raises(BadInput, match=r"engine\.json cannot be read \(it is damaged\)"):
        chosen(tmp_path)


@pytest.mark.parametrize("stated", [{"gpu_memory": "40G"}, {"links": "links.yaml"}])
def test_options_of_this_machines_devices_are_refused(stated: dict[str, str]) -> None:
    said = {"gpu_memory": None, "links": None} | stated
    with pytest.raises(BadInput, match="devices of this machine: not with --engine ray"):
        refuse_device_options("ray", **said)


def test_every_engine_of_the_catalog_can_be_made_without_its_cluster_loaded() -> None:
    assert engine_names()[:2] == ("local", "ray")
    assert all(callable(engine_maker(name)) for name in ENGINES)
