"""A world from a user's file: everything optional, every mistake named. docs/perf.md shows the keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from trainmaster.config.interference import neighbours_from, shared_gpu_from
from trainmaster.config.values import (
    WorldError,
    below_one,
    count,
    flag,
    number,
    only,
    part,
    parts_by_count,
    positive,
    rows_of,
    section,
)
from trainmaster.model.units import HOUR, NOMINAL, SECOND
from trainmaster.perf import default_parameters as published
from trainmaster.perf.interpolation import Table
from trainmaster.perf.locality import PER_DOUBLING, Locality
from trainmaster.perf.model_zoo import table_name
from trainmaster.perf.perf_model import DEFAULT, IDEAL, Breakage, Switching, World
from trainmaster.perf.scaling import Elasticity

__all__ = ["BASES", "WorldError", "world_from"]

BASES = {"ideal": IDEAL, "default": DEFAULT}
KEYS = {
    *("base", "speed", "gpu_speed", "table_error", "elastic", "elastic_efficiency"),
    *("interference", "sharing", "neighbours", "switch"),
    *("node_failures", "checkpoint_every_s", "failures", "split_speed", "profiling_s"),
}
PATHS: Mapping[str, tuple[int | None, int | None]] = {
    "driver": (published.DRIVER_SAVE, published.DRIVER_LOAD),
    "cooperative": (published.COOPERATIVE_SAVE, published.COOPERATIVE_LOAD),
    "none": (None, None),
}
"""Ways for GPU memory to leave and return: bytes a second each."""
GIGA = 1_000_000_000


def world_from(mapping: Mapping[str, object], name: str) -> World:
    """Start from `base` (default: default) and override what the file states."""
    only(mapping, KEYS, "the perf file")
    base = BASES.get(str(mapping.get("base", "default")))
    if base is None:
        raise WorldError(f"base must be ideal or default, not {mapping['base']!r}.")
    has_company = any(mapping.get(key, False) is not False for key in ("sharing", "neighbours"))
    return replace(
        base,
        name=name,
        locality=_locality(base.locality, mapping),
        gpu_speeds={**base.gpu_speeds, **_gpu_speeds(section(mapping, "gpu_speed"))},
        elasticity=_elasticity(base.elasticity, mapping),
        interferes=flag(mapping, "interference", base.interferes or has_company),
        shared_gpu=shared_gpu_from(base.shared_gpu, section(mapping, "sharing")),
        neighbours=neighbours_from(base.neighbours, mapping),
        switching=_switching(base.switching, section(mapping, "switch")),
        breakage=_breakage(base.breakage, mapping),
        has_failures=flag(mapping, "failures", base.has_failures),
        split_ppm=_split(base.split_ppm, mapping),
        profiling_ms=_milliseconds(base.profiling_ms, mapping, "profiling_s"),
    )


def _split(base: int, mapping: Mapping[str, object]) -> int:
    """`split_speed: 0.9`: a model over two GPUs against one that holds all of it."""
    if "split_speed" not in mapping:
        return base
    return part(mapping["split_speed"], "split_speed", "one GPU that holds all of it is best")


def _milliseconds(base: int, mapping: Mapping[str, object], key: str, where: str = "") -> int:
    """Seconds in the file, 0 or more."""
    return number(mapping[key], f"{where}{key}", SECOND) if key in mapping else base


# -- speed by place ----------------------------------------------------------------------------------


def _locality(base: Locality, mapping: Mapping[str, object]) -> Locality:
    """`speed: {default: {rack: 0.85}, models: {vgg16: {rack: 0.7}}, nodes: …, widths: …}`."""
    speed = section(mapping, "speed")
    only(speed, {"default", "models", "nodes", "widths"}, "speed")
    models, nodes, widths = dict(base.models), dict(base.node_counts), dict(base.widths)
    named = section(speed, "models", "speed")
    for model, table in named.items():
        if not isinstance(table, Mapping):
            raise WorldError(f"speed.models.{model} must map spans to speeds.")
        name = table_name(model)
        models[name] = {**models.get(name, {}), **_spans(table, f"speed.models.{model}")}
        nodes.pop(name, None)
        widths.pop(name, None)
    nodes.update(_node_counts(section(speed, "nodes", "speed")))
    widths.update(_widths(section(speed, "widths", "speed")))
    spans = _spans(section(speed, "default", "speed"), "speed.default")
    error = base.error_ppm
    if "table_error" in mapping:
        error = below_one(mapping["table_error"], "table_error")
    return Locality({**base.spans, **spans}, models, nodes, widths, error)


def _spans(table: Mapping[str, object], where: str) -> dict[str, int]:
    best = "the nearest placement is best"
    return {str(span): part(table[span], f"{where}.{span}", best) for span in table}


def _node_counts(rows: Mapping[str, object]) -> dict[str, dict[int, Table]]:
    """`{resnet50: {4: {2: 0.72, 4: 0.42}}}`: model, GPUs, nodes, speed."""
    found: dict[str, dict[int, Table]] = {}
    for model in rows:
        at = f"speed.nodes.{model}"
        sizes = rows_of(rows, model, "speed.nodes")
        found[table_name(model)] = {
            count(size, at, 2): parts_by_count(sizes, size, at, 2) for size in sizes
        }
    return found


def _widths(rows: Mapping[str, object]) -> dict[str, Table]:
    """`{vgg16: {2: 0.73}}`: on twice the fewest nodes that a gang needs, where it needs several."""
    found: dict[str, Table] = {}
    for model in rows:
        at = f"speed.widths.{model}"
        table = rows_of(rows, model, "speed.widths")
        wides = {_width(wide, at): part(table[wide], f"{at}.{wide}") for wide in table}
        found[table_name(model)] = wides
    return found


def _width(key: str, where: str) -> int:
    try:
        times = float(key)
    except ValueError:
        times = 0.0
    if not 1 < times < 1e6:
        raise WorldError(f"{where} must have numbers above 1 as its keys, not {key!r}.")
    return round(times * PER_DOUBLING)


def _gpu_speeds(rows: Mapping[str, object]) -> dict[str, dict[str, int]]:
    """`{resnet50: {K80: 0.14, V100: 1}}`: relative to the GPU that run times were measured on."""
    found: dict[str, dict[str, int]] = {}
    for model in rows:
        table = rows_of(rows, model, "gpu_speed")
        at = f"gpu_speed.{model}"
        found[table_name(model)] = {
            table_name(kind): positive(table[kind], f"{at}.{kind}") for kind in table
        }
    return found


# -- speed by size -----------------------------------------------------------------------------------


def _elasticity(base: Elasticity, mapping: Mapping[str, object]) -> Elasticity:
    """`elastic: {default_efficiency: 0.868, models: {resnet50: {1: 1, 2: 1.9, 4: 3.4}}}`."""
    elastic = section(mapping, "elastic")
    only(elastic, {"default_efficiency", "models"}, "elastic")
    kept = base.doubling_ppm
    for where, table, key in (
        ("elastic_efficiency", mapping, "elastic_efficiency"),
        ("elastic.default_efficiency", elastic, "default_efficiency"),
    ):
        if key in table:
            kept = part(table[key], where, "twice the GPUs are at most twice as fast")
            if 2 * kept < NOMINAL:
                raise WorldError(f"{where} must be at least 0.5: more GPUs are never slower.")
    rows = section(elastic, "models", "elastic")
    tables = {table_name(model): _speedups(rows, model) for model in rows}
    return Elasticity(kept, {**base.models, **tables})


def _speedups(rows: Mapping[str, object], model: str) -> Table:
    """Speeds in any unit, made relative to one GPU; more GPUs are never slower."""
    at = f"elastic.models.{model}"
    table = section(rows, model, "elastic.models")
    found = {count(gpus, at): _speed(table[gpus], f"{at}.{gpus}") for gpus in table}
    if 1 not in found:
        raise WorldError(f"{at} must say the speed on 1 GPU, which the others are relative to.")
    counts = list(found)
    for fewer, more in pairwise(counts):
        if fewer >= more:
            raise WorldError(f"{at} must go from fewer GPUs to more, not from {fewer} to {more}.")
        if found[fewer] > found[more]:
            raise WorldError(
                f"{at} must not fall: {more} GPUs are slower than {fewer};"
                f" leave {more} out, and the speed stays that of {fewer}."
            )
    return {gpus: round(speed / found[1] * NOMINAL) for gpus, speed in found.items()}


def _speed(value: object, where: str) -> float:
    """More than 0, in any unit."""
    number(value, where, NOMINAL)
    assert isinstance(value, int | float)
    if not value:
        raise WorldError(f"{where} must be more than 0.")
    return float(value)


# -- switching and breaking --------------------------------------------------------------------------


def _switching(base: Switching, said: Mapping[str, object]) -> Switching:
    times = {
        "start_s": base.start_ms,
        "suspend_s": base.suspend_ms,
        "resume_s": base.resume_ms,
        "thaw_s": base.thaw_ms,
        "resize_s": base.resize_ms,
    }
    only(said, {*times, "freeze_s", "by", "saves", "path", "save_gb_s", "load_gb_s"}, "switch")
    for key, known in times.items():
        times[key] = _milliseconds(known, said, key, "switch.")
    save, load = _bandwidths(base, said)
    return Switching(
        start_ms=times["start_s"],
        suspend_ms=times["suspend_s"],
        resume_ms=times["resume_s"],
        thaw_ms=times["thaw_s"],
        freeze_ms=_freezing(base.freeze_ms, said),
        resize_ms=times["resize_s"],
        can_freeze=_either(said, "by", ("halt", "freeze"), base.can_freeze),
        save_bytes_s=save,
        load_bytes_s=load,
        saves_on_demand=_either(said, "saves", ("periodic", "on-demand"), base.saves_on_demand),
    )


def _freezing(base: int | None, said: Mapping[str, object]) -> int | None:
    """None where nobody told it from a suspension of any other kind."""
    key = "freeze_s"
    return number(said[key], f"switch.{key}", SECOND) if key in said else base


def _either(said: Mapping[str, object], key: str, words: tuple[str, str], base: bool) -> bool:
    """Whether `switch` says the second of two words."""
    word = said.get(key, words[base])
    if word not in words:
        raise WorldError(f"switch.{key} must be {words[0]} or {words[1]}, not {word!r}.")
    return word == words[1]


def _bandwidths(base: Switching, said: Mapping[str, object]) -> tuple[int | None, int | None]:
    """How memory travels, then each way's own figure."""
    save, load = base.save_bytes_s, base.load_bytes_s
    if "path" in said:
        known = PATHS.get(str(said["path"]))
        if known is None:
            raise WorldError(
                f"switch.path must be one of {', '.join(PATHS)}, not {said['path']!r}."
            )
        save, load = known
    if "save_gb_s" in said:
        save = positive(said["save_gb_s"], "switch.save_gb_s", GIGA)
    if "load_gb_s" in said:
        load = positive(said["load_gb_s"], "switch.load_gb_s", GIGA)
    return save, load


def _breakage(base: Breakage, mapping: Mapping[str, object]) -> Breakage:
    if "checkpoint_every_s" in mapping:
        every = positive(mapping["checkpoint_every_s"], "checkpoint_every_s", SECOND)
        base = replace(base, checkpoint_ms=every)
    said = section(mapping, "node_failures")
    only(said, {"mtbf_h", "repair_h", "detection_s"}, "node_failures")
    unnoticed = _milliseconds(base.detection_ms, said, "detection_s", "node_failures.")
    base = replace(base, detection_ms=unnoticed)
    if "mtbf_h" in said:
        base = replace(base, mtbf_ms=positive(said["mtbf_h"], "node_failures.mtbf_h", HOUR))
    if "repair_h" in said:
        base = replace(base, repair_ms=positive(said["repair_h"], "node_failures.repair_h", HOUR))
    return base
