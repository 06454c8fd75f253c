"""A world from a user's file: everything optional, every mistake named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainmaster.model.units import HOUR, NOMINAL, SECOND
from trainmaster.perf.world import DEFAULT, IDEAL, Breakage, Switching, World

BASES = {"ideal": IDEAL, "default": DEFAULT}


class WorldError(ValueError):
    """A perf file that cannot be used: one sentence."""


def world_from(mapping: Mapping[str, object], name: str) -> World:
    """Start from `base` (default: default) and override what the file states."""
    known = {
        "base", "speed", "switch", "node_failures", "checkpoint_every_s", "failures",
        "interference", "elastic_efficiency", "table_error",
    }  # fmt: skip
    _only(mapping, known, "the perf file")
    base = BASES.get(str(mapping.get("base", "default")))
    if base is None:
        raise WorldError(f"base must be ideal or default, not {mapping['base']!r}.")
    world = replace(base, name=name)
    if "speed" in mapping:
        world = _with_speeds(world, _section(mapping, "speed"))
    if "switch" in mapping:
        world = replace(world, switching=_switching(world.switching, _section(mapping, "switch")))
    breakage = _breakage(world.breakage, mapping)
    return replace(
        world,
        breakage=breakage,
        has_failures=_flag(mapping, "failures", world.has_failures),
        interferes=_flag(mapping, "interference", world.interferes),
        doubling_ppm=_efficiency(mapping, world.doubling_ppm),
        table_error_ppm=_ppm(mapping, "table_error", world.table_error_ppm),
    )


def _with_speeds(world: World, section: Mapping[str, object]) -> World:
    """`speed: {default: {rack: 0.85}, models: {vgg16: {rack: 0.7}}}`."""
    _only(section, {"default", "models"}, "speed")
    spans, models = dict(world.spans), dict(world.models)
    if "default" in section:
        spans.update(_factors(_section(section, "default"), "speed.default"))
    if "models" in section:
        for model, table in _section(section, "models").items():
            if not isinstance(table, Mapping):
                raise WorldError(f"speed.models.{model} must map spans to speeds.")
            models[model] = {**models.get(model, {}), **_factors(table, f"speed.models.{model}")}
    return replace(world, spans=spans, models=models)


def _factors(table: Mapping[str, object], where: str) -> dict[str, int]:
    factors = {}
    for span, value in table.items():
        factors[span] = _positive(value, f"{where}.{span}", NOMINAL)
        if factors[span] > NOMINAL:
            raise WorldError(f"{where}.{span} must be at most 1: inside a node is best.")
    return factors


def _switching(base: Switching, section: Mapping[str, object]) -> Switching:
    fields = {
        "start_s": base.start_ms,
        "suspend_s": base.suspend_ms,
        "resume_s": base.resume_ms,
        "thaw_s": base.thaw_ms,
        "resize_s": base.resize_ms,
    }
    _only(section, {*fields, "by"}, "switch")
    by = section.get("by", "freeze" if base.can_freeze else "halt")
    if by not in ("halt", "freeze"):
        raise WorldError(f"switch.by must be halt or freeze, not {by!r}.")
    for key in fields:
        if key in section:
            fields[key] = _number(section[key], f"switch.{key}", SECOND)
    return Switching(
        start_ms=fields["start_s"],
        suspend_ms=fields["suspend_s"],
        resume_ms=fields["resume_s"],
        thaw_ms=fields["thaw_s"],
        resize_ms=fields["resize_s"],
        can_freeze=by == "freeze",
    )


def _breakage(base: Breakage, mapping: Mapping[str, object]) -> Breakage:
    if "checkpoint_every_s" in mapping:
        every = _positive(mapping["checkpoint_every_s"], "checkpoint_every_s", SECOND)
        base = replace(base, checkpoint_ms=every)
    if "node_failures" not in mapping:
        return base
    section = _section(mapping, "node_failures")
    _only(section, {"mtbf_h", "repair_h"}, "node_failures")
    if "mtbf_h" in section:
        base = replace(base, mtbf_ms=_positive(section["mtbf_h"], "node_failures.mtbf_h", HOUR))
    if "repair_h" in section:
        base = replace(
            base, repair_ms=_positive(section["repair_h"], "node_failures.repair_h", HOUR)
        )
    return base


def _only(mapping: Mapping[str, object], known: set[str], where: str) -> None:
    for key in mapping:
        if key not in known:
            raise WorldError(f"{where} has no {key!r}; it may hold {', '.join(sorted(known))}.")


def _section(mapping: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = mapping[key]
    if not isinstance(value, Mapping):
        raise WorldError(f"{key} must be a mapping, not {value!r}.")
    return value


def _number(value: object, where: str, unit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise WorldError(f"{where} must be a number of at least 0, not {value!r}.")
    return round(value * unit)


def _positive(value: object, where: str, unit: int) -> int:
    number = _number(value, where, unit)
    if number == 0:
        raise WorldError(f"{where} must be more than 0.")
    return number


def _ppm(mapping: Mapping[str, object], key: str, default: int) -> int:
    return _number(mapping[key], key, NOMINAL) if key in mapping else default


def _efficiency(mapping: Mapping[str, object], default: int) -> int:
    key = "elastic_efficiency"
    return _positive(mapping[key], key, NOMINAL) if key in mapping else default


def _flag(mapping: Mapping[str, object], key: str, default: bool) -> bool:
    value = mapping.get(key, default)
    if not isinstance(value, bool):
        raise WorldError(f"{key} must be true or false, not {value!r}.")
    return value
