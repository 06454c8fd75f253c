"""What is learned of host memory for each device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_job
from trainmaster.daemon.host_memory_use import of_each_device
from trainmaster.daemon.live_job import LiveJob, StoredSubmission
from trainmaster.model.engine_reports import Ended
from trainmaster.model.job import Run
from trainmaster.model.launch_spec import LaunchSpec, Ranks
from trainmaster.model.placement import Placement, Slice
from trainmaster.model.units import MIB


@pytest.mark.parametrize(
    ("ranks", "launcher", "nodes", "mib"),
    [
        pytest.param(Ranks.PER_NODE, "", (0,), 400, id="one device"),
        pytest.param(Ranks.PER_NODE, "", (0, 0, 0, 0), 100, id="a process with four"),
        pytest.param(Ranks.PER_NODE, "", (0, 0, 1, 1), 200, id="a process on each of two nodes"),
        pytest.param(Ranks.PER_NODE, "", (0, 0, 0, 1), 400, id="one of them has one device"),
        pytest.param(
            Ranks.PER_NODE, "torchrun", (0, 0), 400, id="its launcher starts one for each"
        ),
        pytest.param(Ranks.PER_GPU, "", (0, 0), 400, id="a gang with a process for each"),
    ],
)
def test_a_process_is_shared_out_among_its_devices(
    ranks: Ranks, launcher: str, nodes: tuple[int, ...], mib: int
) -> None:
    recipe = LaunchSpec(("train",), "/", "/", ranks=ranks, launcher=launcher)
    live = LiveJob(a_job("a"), "a", StoredSubmission(recipe, a_job("a")), {})
    there = Placement(tuple(Slice(node, gpu) for gpu, node in enumerate(nodes)), span=0)
    said = Ended(Run("a", 1), 0, 0, peak_memory=400 * MIB)
    assert of_each_device(said, live, there) == mib * MIB
    assert of_each_device(replace(said, peak_memory=None), live, there) is None


@pytest.mark.parametrize(
    ("ranks", "launcher", "largest", "all_of_rank", "mib"),
    [
        pytest.param(Ranks.PER_NODE, "", 300, 800, 400, id="loaders beside the largest"),
        pytest.param(Ranks.PER_NODE, "", 900, 800, 450, id="a short peak of the largest"),
        pytest.param(Ranks.PER_NODE, "torchrun", 300, 800, 400, id="a launcher and what it starts"),
        pytest.param(Ranks.PER_GPU, "", 300, 800, 800, id="a rank for each"),
    ],
)
def test_all_processes_of_a_rank_count(
    ranks: Ranks, launcher: str, largest: int, all_of_rank: int, mib: int
) -> None:
    recipe = LaunchSpec(("train",), "/", "/", ranks=ranks, launcher=launcher)
    live = LiveJob(a_job("a"), "a", StoredSubmission(recipe, a_job("a")), {})
    there = Placement((Slice(0, 0), Slice(0, 1)), span=0)
    peaks = {"peak_memory": largest * MIB, "rank_memory": all_of_rank * MIB}
    assert of_each_device(Ended(Run("a", 1), 0, 0, **peaks), live, there) == mib * MIB
