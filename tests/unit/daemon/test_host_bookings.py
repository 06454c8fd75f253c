"""What is learned of host memory for each device."""

from __future__ import annotations

import pytest

from tests.builders import a_job
from trainmaster.daemon.host_bookings import of_each_device
from trainmaster.daemon.live_job import LiveJob, StoredSubmission
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
    assert of_each_device(400 * MIB, live, there) == mib * MIB
    assert of_each_device(None, live, there) is None
