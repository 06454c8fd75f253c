"""`trainmaster estimate --speed`: samples per second by the number of devices, from a profile and links."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from trainmaster.cli.support.console import remark, say, show_table, write_json
from trainmaster.cli.support.link_profiling import links_file, read_links
from trainmaster.client.manager_api import Json, ManagerApi
from trainmaster.client.program_profiles import stored_profile
from trainmaster.config.links import GIGA, MeasuredLinks
from trainmaster.errors import BadInput, Failed
from trainmaster.estimators.allocation import Allocation
from trainmaster.estimators.interconnect import Links, links_of
from trainmaster.gpu.devices import detect_machine
from trainmaster.model.profile import Profile
from trainmaster.model.topology import Topology, TopologyError
from trainmaster.model.units import NOMINAL
from trainmaster.profiling.speed_curve import SpeedPoint, setbacks, speed_curve
from trainmaster.scenarios.inputs import cluster_of
from trainmaster.text.formatting import plural, significant

USUAL = "usual"
"""What --links says for figures that nobody measured here."""
HOW = "measure it with `trainmaster profile program -- COMMAND`"


def show_speed(source: str, cluster: str | None, links: str | None, as_json: bool) -> None:
    """Predict and show it."""
    profile = _profile(source)
    topology = _topology(cluster)
    measured = _links(links, topology)
    figures = links_of(replace(topology, links=measured))
    kinds = [each.name for each in topology.types]
    curves = {kind: speed_curve(profile, topology, figures, kind) for kind in kinds}
    if links != USUAL and (missing := _unmeasured(curves.values(), measured)):
        remark("Note", [_assumed(each, figures) for each in missing])
    if as_json:
        write_json(_as_json(profile, measured, curves))
        return
    if not profile.batch:
        remark("Note", ["its batch is not known: that of one device counts as one sample"])
    for kind, curve in curves.items():
        if len(curves) > 1:
            say(f"{kind} ({significant(topology.speed_by_type[kind] / NOMINAL)}x):")
        _show(curve, figures)


def _show(curve: tuple[SpeedPoint, ...], links: Links) -> None:
    show_table(
        ("devices", "on nodes", "samples/s", "of linear", "exchange", "link"),
        [
            (
                str(each.allocation.count),
                _nodes(each.allocation),
                _rate(each),
                f"{each.efficiency_ppm / NOMINAL:.0%}",
                f"{(each.step.inside_ns + each.step.between_ns) / 1e6:.1f} ms",
                _link(each.allocation, links),
            )
            for each in curve
        ],
    )
    for before, after in setbacks(curve):
        fewer, more = before.allocation, after.allocation
        say(
            f"Slower with more: {plural(fewer.count, 'device')} on {plural(len(fewer.per_node), 'node')}"
            f" {_rate(before)} samples/s, {more.count} on {plural(len(more.per_node), 'node')}"
            f" {_rate(after)}."
        )


def _rate(point: SpeedPoint) -> str:
    rate = point.samples_per_s
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _assumed(level: str, links: Links) -> str:
    link = links.at(level)
    usual = f"{link.bytes_per_s / GIGA:.3g} GB/s, {link.latency_us} µs"
    return f"no link was measured at the level {level}: a usual one is assumed ({usual})"


def _nodes(allocation: Allocation) -> str:
    """4+2: devices on each node."""
    per_node = allocation.per_node
    if len(per_node) > 4 and len(set(per_node[:-1])) == 1:
        last = "" if per_node[-1] == per_node[0] else f"+{per_node[-1]}"
        return f"{len(per_node) - bool(last)}x{per_node[0]}{last}"
    return "+".join(map(str, per_node))


def _link(allocation: Allocation, links: Links) -> str:
    if allocation.count == 1:
        return "-"
    link = links.at(allocation.span)
    return f"{allocation.span}, {link.bytes_per_s / GIGA:.3g} GB/s, {link.latency_us} µs"


def _profile(source: str) -> Profile:
    path = Path(source)
    if path.exists():
        profile = stored_profile(path).profile
    elif path.suffix or "/" in source:
        raise BadInput(f"there is no file {source}: {HOW}.")
    else:
        profile = _of_job(source)
    if not profile.is_predictive:
        what = "the bytes of its parameters are" if profile.step_us else "the time of its steps is"
        raise Failed(f"{source}: {what} not known on one device: {HOW}.")
    return profile


def _of_job(name: str) -> Profile:
    """What the manager has measured of a job."""
    said = ManagerApi().get(f"/jobs/{quote(name, safe='')}")["profile"]
    if said is None:
        raise Failed(f"job {name}: nothing of its program has been measured: {HOW}.")
    return Profile(**{name: value for name, value in said.items() if value}, per_gpu=True)


def _topology(cluster: str | None) -> Topology:
    if cluster is not None:
        return cluster_of(cluster).topology
    try:
        return detect_machine().topology
    except TopologyError as problem:
        raise Failed(f"{problem}: say the cluster with --cluster.") from None


def _links(stated: str | None, topology: Topology) -> MeasuredLinks:
    """Of the option, else of the cluster file, else those that were measured here."""
    if stated == USUAL:
        return ()
    if stated is not None:
        return read_links(Path(stated))
    if topology.links:
        return topology.links
    path = links_file()
    if topology.gpu_count > 1 and not path.exists():
        raise BadInput(
            f"no links have been measured ({path} is not there): call `trainmaster profile links`, or say"
            " --links usual for usual figures."
        )
    return read_links(path) if path.exists() else ()


def _unmeasured(curves: Iterable[tuple[SpeedPoint, ...]], measured: MeasuredLinks) -> list[str]:
    """Levels that are crossed and of which a usual figure is taken."""
    known = dict(measured)
    crossed: dict[str, None] = {}
    for curve in curves:
        for point in curve:
            allocation = point.allocation
            if allocation.count > 1 and allocation.span not in known:
                crossed[allocation.span] = None
            if len(allocation.per_node) > 1 and allocation.per_node[0] > 1 and "node" not in known:
                crossed["node"] = None
    return [*crossed]


def _as_json(
    profile: Profile, measured: MeasuredLinks, curves: dict[str, tuple[SpeedPoint, ...]]
) -> Json:
    return {
        "step_us": profile.step_us,
        "batch": profile.batch or None,
        "sync_bytes": profile.sync_bytes,
        "links": {
            level: {"gb_s": link.bytes_per_s / GIGA, "latency_us": link.latency_us}
            for level, link in measured
        },
        "curves": [
            {
                "type": kind,
                "devices": each.allocation.count,
                "per_node": list(each.allocation.per_node),
                "span": each.allocation.span,
                "samples_per_s": each.samples_per_s,
                "step_ms": each.step.step_ns() / 1e6,
                "efficiency": each.efficiency_ppm / NOMINAL,
            }
            for kind, curve in curves.items()
            for each in curve
        ],
    }
