"""A machine's devices as a topology: near GPUs side by side, slots where there are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from trainmaster.gpu.devices import (
    detect_machine,
    find_gpus,
    machine_of,
    slot_topology,
    visible,
)
from trainmaster.gpu.driver import DriverError, Gpu
from trainmaster.gpu.freeze_conditions import memory_limit
from trainmaster.model.topology import TopologyError
from trainmaster.model.units import GIB


def a_gpu(number: int, near: tuple[int, ...] = (), name: str = "NVIDIA H100 80GB HBM3") -> Gpu:
    return Gpu(number, name, f"GPU-{number}", 80 * GIB, frozenset({number, *near}))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA", "NVIDIA"),
    ],
)
def test_a_gpu_is_called_what_people_call_it(name: str, kind: str) -> None:
    assert a_gpu(0, name=name).kind == kind


def test_gpus_that_reach_each_other_form_islands_and_lie_side_by_side() -> None:
    crossed = [a_gpu(0, (2,)), a_gpu(1, (3,)), a_gpu(2, (0,)), a_gpu(3, (1,))]
    found = machine_of(crossed, "host", 32_000, 256 * GIB)
    assert found.devices == ("GPU-0", "GPU-2", "GPU-1", "GPU-3")
    (node,) = found.topology.nodes
    assert (node.name, node.type.name, node.cpus, node.memory) == (
        "host",
        "H100",
        32_000,
        256 * GIB,
    )
    assert node.islands == ((0, 1), (2, 3))
    levels = found.topology.levels
    assert levels[found.topology.span_of_gpus([0, 1])] == "island"
    assert levels[found.topology.span_of_gpus([0, 2])] == "node"


def test_gpus_that_all_reach_each_other_need_no_islands() -> None:
    everyone = (0, 1, 2)
    found = machine_of([a_gpu(n, everyone) for n in everyone], "host", 9_000, 9 * GIB)
    assert "island" not in found.topology.levels


def test_nearness_is_passed_on_and_islands_may_differ_in_size() -> None:
    chain = [a_gpu(0, (1,)), a_gpu(1, (2,)), a_gpu(2), a_gpu(3)]
    (node,) = machine_of(chain, "host", 4_000, 4 * GIB).topology.nodes
    assert node.islands == ((0, 1, 2), (3,))


def test_each_kind_of_gpu_is_a_node_with_its_part_of_the_machine() -> None:
    mixed = [a_gpu(0), a_gpu(1, name="NVIDIA L4"), a_gpu(2), a_gpu(3)]
    found = machine_of(mixed, "host", 8_000, 80 * GIB)
    assert [(n.name, n.type.name, n.gpus, n.cpus) for n in found.topology.nodes] == [
        ("host", "H100", 3, 6_000),
        ("host-l4-1", "L4", 1, 2_000),
    ]
    assert found.devices == ("GPU-0", "GPU-2", "GPU-3", "GPU-1")


@pytest.mark.parametrize(
    ("setting", "want"),
    [(None, [0, 1, 2]), ("", []), ("2,0", [0, 2]), ("GPU-1", [1]), ("7", [])],
)
def test_cuda_visible_devices_says_which_gpus_are_ours(
    setting: str | None, want: list[int]
) -> None:
    assert [gpu.number for gpu in visible([a_gpu(0), a_gpu(1), a_gpu(2)], setting)] == want


def test_slots_share_what_the_machine_has() -> None:
    topology = slot_topology(2, 4, "host", 16_000, 64 * GIB)
    assert [node.name for node in topology.nodes] == ["host-0", "host-1"]
    assert {(n.gpus, n.cpus, n.memory) for n in topology.nodes} == {(4, 8_000, 32 * GIB)}
    assert (topology.types[0].name, topology.types[0].memory) == ("slot", 2 * GIB)


def test_slots_that_are_asked_for_are_given_whatever_the_machine_has() -> None:
    found = detect_machine("2x3")
    assert (len(found.topology.nodes), found.topology.gpu_count, found.devices) == (2, 6, ())
    assert detect_machine("5").topology.gpu_count == 5


@pytest.mark.parametrize("text", ["x4", "4x", "2x2x2", "-1", "many"])
def test_slots_that_are_no_shape_are_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(TopologyError, match=f"--slots {text} is neither a number nor of the form"):
        detect_machine(text)


@pytest.mark.parametrize("text", ["0", "0x4", "2x0", "99999"])
def test_no_slots_or_too_many_are_refused_with_the_bounds(text: str) -> None:
    with pytest.raises(TopologyError, match=f"--slots {text} must be from 1 to 4,096 slots in all"):
        detect_machine(text)


def refusing(number: int) -> Callable[..., object]:
    def refuse(*said: object) -> object:
        raise pynvml.NVMLError(number)

    return refuse


@pytest.mark.parametrize(
    "number", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED]
)
def test_a_machine_without_a_driver_has_no_gpus(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", refusing(number))
    assert find_gpus() == ()
    assert detect_machine().devices == ()


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"])
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "version mismatch"),
        (pynvml.NVML_ERROR_GPU_IS_LOST, "is lost"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "permission"),
    ],
)
def test_a_driver_that_does_not_answer_does_not_make_it_a_machine_without_gpus(
    monkeypatch: pytest.MonkeyPatch, call: str, number: int, words: str
) -> None:
    for name, answer in (
        ("nvmlInit", None),
        ("nvmlDeviceGetCount", 2),
        ("nvmlDeviceGetHandleByIndex", 0),
        ("nvmlShutdown", None),
    ):
        monkeypatch.setattr(pynvml, name, lambda *said, answer=answer: answer)
    monkeypatch.setattr(pynvml, call, refusing(number))
    with pytest.raises(DriverError, match=words):
        detect_machine()
    assert detect_machine("2").devices == ()


def test_the_least_limit_of_the_control_groups_counts(tmp_path: Path) -> None:
    groups = []
    for name, file, limit in (
        ("own", "memory.max", "max"),
        ("above", "memory.max", str(8 * GIB)),
        ("old", "memory.limit_in_bytes", str(9223372036854771712)),
        ("top", "memory.limit_in_bytes", str(12 * GIB)),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(limit + "\n")
        groups.append((str(tmp_path / name), 2 if file == "memory.max" else 1))
    groups.append((str(tmp_path / "gone"), 2))
    assert memory_limit(groups) == 8 * GIB
    assert memory_limit([groups[0], groups[2], groups[4]]) is None
