"""`trainmaster split`: where each operator of a model runs, over several devices."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from trainmaster.cli.support import model_splits
from trainmaster.cli.support.options import AsJson, argument, option
from trainmaster.config.split_devices import split_devices, split_link
from trainmaster.errors import BadInput
from trainmaster.profiling.graph_trace import CaptureSetup

FACTORY = "Function that returns the model: package.module:function or train.py:function."
DEVICES = (
    "Memory of each device: 24GiB,11GiB,8GiB. 24GiB@0.5: at half the speed."
    " 24GiB/2: two streams of one GPU."
)
PLACER = (
    "m-etf, m-sct (better on most graphs, slower), m-topo (fills one device after the other), exact (up to"
    " 12 operators), or ralp: the layers behind which a tail is trained on one worker."
)
INPUT = (
    "Shape of one example: 3x224x224, or 512:int<50000 for words. Default: the module's make_batch."
)
LINK = "Bandwidth and latency between devices."
ON = "Where operators are measured."
COLOCATE = "Place operators together with their only reader, in groups of up to this much memory."
WORKERS = "With --placer ralp: workers that train in data parallel."
PYTHON = "Python of the training environment. Default: that of this command."
PLOT = "Draw the graph with its cut, and the step, into FILE (.svg, .png or .pdf)."
Placer = Literal["m-etf", "m-sct", "m-topo", "exact", "ralp"]
Optimizer = Literal["sgd", "momentum", "adam", "adamw", "rmsprop", "adagrad"]


def split(
    factory: Annotated[str, argument("FACTORY", FACTORY)],
    devices: Annotated[str, option("-d --devices LIST", DEVICES)],
    placer: Annotated[Placer, option("--placer NAME", PLACER)] = "m-etf",
    batch: Annotated[int, option("-b --batch N", "Examples per step.", min=1)] = 1,
    input: Annotated[str, option("--input SHAPE", INPUT)] = "",
    optimizer: Annotated[Optimizer, option("--optimizer NAME", "The optimizer.")] = "adamw",
    link: Annotated[str, option("--link RATE,LATENCY", LINK)] = "12GB/s,20us",
    on: Annotated[Literal["cpu", "cuda"], option("--on DEVICE", ON)] = "cpu",
    rounds: Annotated[int, option("--rounds N", "Measurements of each operator.", min=1)] = 5,
    colocate: Annotated[str | None, option("--colocate SIZE", COLOCATE)] = None,
    workers: Annotated[int, option("--workers N", WORKERS, min=2)] = 2,
    plot: Annotated[Path | None, option("--plot FILE", PLOT)] = None,
    python: Annotated[str, option("--python FILE", PYTHON)] = sys.executable,
    as_json: AsJson = False,
) -> None:
    """Place a model's operators on several devices, and predict memory and step time.

    Examples:
        trainmaster split train.py:make_model --devices 24GiB,11GiB,8GiB --batch 32
        trainmaster split train.py:make_model --devices 8GiB,8GiB --placer m-sct --plot cut.svg
        trainmaster split train.py:make_model --devices 24GiB --placer ralp --workers 8
    """
    if not all(factory.rpartition(":")):
        raise BadInput(f"`{factory}` names no function: write train.py:make_model.")
    try:
        placed_on, line = split_devices(devices), split_link(link)
    except ValueError as why:
        raise BadInput(str(why)) from None
    if plot is not None and plot.suffix not in (".svg", ".png", ".pdf"):
        raise BadInput(f"{plot} is none of .svg, .png and .pdf: choose one of these.")
    setup = CaptureSetup(factory, batch, optimizer, input, on, rounds)
    captured = model_splits.captured(setup, python)
    if placer == "ralp":
        model_splits.show_partition_point(captured, batch, workers, placed_on[0], as_json)
        return
    captured = model_splits.reduced(captured, colocate)
    graph = captured.graph
    made = model_splits.placed(graph, placed_on, line, placer)
    if plot is not None:
        model_splits.draw(graph, made, placed_on, plot)
    model_splits.show_split(setup, captured, graph, made, placed_on, as_json)
