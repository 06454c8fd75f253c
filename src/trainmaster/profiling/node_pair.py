"""One of two nodes that try an all-reduce with each other: a program of its own, which says how that went.

`python -m trainmaster.profiling.node_pair port HOST` says a port of this node at which the two can meet;
`python -m trainmaster.profiling.node_pair REQUEST` takes part, and rank 0 says how fast it was.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any

from trainmaster.engines.local.worker_environment import free_port
from trainmaster.profiling.links import CannotMeasure, LinkMeter, Meeting, NoTorch

SECONDS = 0.2
"""For each of five sizes."""


def tried(request: dict[str, Any]) -> dict[str, Any]:
    """How an all-reduce with the other node went."""
    os.environ["PATH"] = request["path"] or os.environ.get("PATH", "")
    python = shutil.which(request["python"]) if request["python"] else sys.executable
    if python is None:
        return {"untried": f"there is no {request['python']}"}
    is_on_gpu = request["uuid"] is not None
    if is_on_gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = request["uuid"]
    meter = LinkMeter(python, SECONDS, request["patience_s"])
    meeting = Meeting(request["rank"], 2, request["host"], request["port"])
    try:
        found = meter.between_nodes(meeting, None, on_gpus=is_on_gpu)
    except NoTorch as missing:
        return {"untried": str(missing)}
    except CannotMeasure as problem:
        return {"trouble": str(problem)}
    return {"bytes_per_s": None if found is None else found.between.bytes_per_s}


def main(words: list[str]) -> None:
    said = free_port(words[1]) if words[0] == "port" else tried(json.loads(words[0]))
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1:])
