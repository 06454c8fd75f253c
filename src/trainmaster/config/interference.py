"""What a user's file says of jobs that share a GPU or a wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainmaster.config.values import (
    WorldError,
    below_one,
    count,
    number,
    only,
    part,
    parts_by_model,
    positive,
    rows_of,
    section,
)
from trainmaster.model.placement import Sharing
from trainmaster.model.units import NOMINAL
from trainmaster.perf import default_parameters as published
from trainmaster.perf.gpu_interference import Law, Measured, SharedGpu
from trainmaster.perf.interpolation import Table
from trainmaster.perf.model_zoo import table_name
from trainmaster.perf.network_contention import Neighbours

LAWS = {law.value: law for law in Law}
MODES = {"time": Sharing.TIME, "mps": Sharing.MPS}
MOST = 1_000_000_000
"""No constant of a law exceeds this."""


def shared_gpu_from(base: SharedGpu, said: Mapping[str, object]) -> SharedGpu:
    """`sharing: {law: linear, a: 0, b: 1}`; another law than the base's drops the measured pairs."""
    keys = {"law", "a", "b", "times", "small_util", "bandwidth", "pairs", "opportunistic"}
    only(said, keys, "sharing")
    law = LAWS.get(str(said.get("law", base.law.value)))
    if law is None:
        raise WorldError(f"sharing.law must be one of {', '.join(LAWS)}, not {said['law']!r}.")
    tables = dict(base.tables) if base.tables else dict(published.H200)
    tables.update(_times(tables, section(said, "times", "sharing")))
    pairs = dict(base.pairs) if law is base.law else {}
    pairs.update(_pairs(section(said, "pairs", "sharing")))
    used = section(said, "bandwidth", "sharing")
    whole = "it is a part of what the GPU has"
    guests = section(said, "opportunistic", "sharing")
    only(guests, {"tolerance", "floor"}, "sharing.opportunistic")
    where = "sharing.opportunistic"
    return SharedGpu(
        law=law,
        constant_ppm=_constant(said, base.constant_ppm),
        per_job_ppm=_given(said, "b", "sharing", positive, base.per_job_ppm),
        tables=tables,
        small_util_ppm=_given(said, "small_util", "sharing", below_one, base.small_util_ppm),
        bandwidth={
            **base.bandwidth,
            **{table_name(m): part(used[m], f"sharing.bandwidth.{m}", whole) for m in used},
        },
        pairs=pairs,
        tolerance_ppm=_given(guests, "tolerance", where, below_one, base.tolerance_ppm),
        floor_ppm=_given(guests, "floor", where, part, base.floor_ppm),
    )


def _given(
    said: Mapping[str, object],
    key: str,
    where: str,
    read: Callable[[object, str], int],
    default: int,
) -> int:
    return read(said[key], f"{where}.{key}") if key in said else default


def _constant(said: Mapping[str, object], default: int) -> int:
    """The linear law's a: may be below 0, as fitted ones are."""
    if "a" not in said:
        return default
    value = said["a"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MOST:
        raise WorldError(f"sharing.a must be a number, not {value!r}.")
    return round(value * NOMINAL)


def _times(base: Mapping[Sharing, Measured], said: Mapping[str, object]) -> dict[Sharing, Measured]:
    """`times: {mps: {small: {2: 1.05, 4: 1.26}}}`: how many times as long as alone."""
    only(said, set(MODES), "sharing.times")
    found = {}
    for mode in said:
        at = f"sharing.times.{mode}"
        classes = section(said, mode, "sharing.times")
        only(classes, {"small", "filling"}, at)
        known = base[MODES[mode]]
        tables = {key: _longer(rows_of(classes, key, at), f"{at}.{key}") for key in classes}
        found[MODES[mode]] = Measured(
            small=tables.get("small", known.small), filling=tables.get("filling", known.filling)
        )
    return found


def _longer(rows: Mapping[str, object], where: str) -> Table:
    found = {1: NOMINAL}
    for row in rows:
        times = number(rows[row], f"{where}.{row}", NOMINAL)
        if times < NOMINAL:
            raise WorldError(f"{where}.{row} must be at least 1: nobody is faster in company.")
        found[count(row, where, 2)] = times
    return found


def _pairs(rows: Mapping[str, object]) -> dict[tuple[str, str], int]:
    """`pairs: {gnmt: {lm: 0.955}}`: what GNMT keeps of its speed beside LM."""
    found = {}
    for first in rows:
        beside = section(rows, first, "sharing.pairs")
        for second in beside:
            left = part(beside[second], f"sharing.pairs.{first}.{second}")
            found[table_name(first), table_name(second)] = left
    return found


def neighbours_from(base: Neighbours, mapping: Mapping[str, object]) -> Neighbours:
    """`neighbours: {server: {default: {2: 0.66}}, nic: {…}}`; false for none at all."""
    if mapping.get("neighbours") is False:
        return Neighbours()
    said = section(mapping, "neighbours")
    only(said, {"server", "nic"}, "neighbours")
    server = parts_by_model(section(said, "server", "neighbours"), "neighbours.server", 2)
    nic = parts_by_model(section(said, "nic", "neighbours"), "neighbours.nic", 2)
    return Neighbours({**base.server, **server}, {**base.nic, **nic})
