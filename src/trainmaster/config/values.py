"""Values out of a perf file: numbers in their units, tables by count, and sentences for mistakes."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.model.units import NOMINAL
from trainmaster.perf.interpolation import Table
from trainmaster.perf.model_zoo import table_name


class WorldError(ValueError):
    """A perf file that cannot be used: one sentence."""


def only(mapping: Mapping[str, object], known: set[str], where: str) -> None:
    for key in mapping:
        if key not in known:
            raise WorldError(f"{where} has no {key!r}; it may hold {', '.join(sorted(known))}.")


def section(mapping: Mapping[str, object], key: str, where: str = "") -> Mapping[str, object]:
    """The mapping under a key, empty where there is none."""
    value = mapping.get(key, {})
    at = f"{where}.{key}" if where else key
    if not isinstance(value, Mapping):
        raise WorldError(f"{at} must be a mapping, not {value!r}.")
    return {str(each): value[each] for each in value}


def rows_of(mapping: Mapping[str, object], key: str, where: str) -> Mapping[str, object]:
    """The same where there must be something in it."""
    found = section(mapping, key, where)
    if not found:
        raise WorldError(f"{where}.{key} must not be empty.")
    return found


def number(value: object, where: str, unit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise WorldError(f"{where} must be a number of at least 0, below 10^12, not {value!r}.")
    return round(value * unit)


def positive(value: object, where: str, unit: int = NOMINAL) -> int:
    found = number(value, where, unit)
    if found == 0:
        raise WorldError(f"{where} must be more than 0.")
    return found


def part(value: object, where: str, why: str = "it is a part of the speed alone") -> int:
    """More than 0 and at most 1, in parts per million."""
    found = positive(value, where)
    if found > NOMINAL:
        raise WorldError(f"{where} must be at most 1: {why}.")
    return found


def below_one(value: object, where: str) -> int:
    """From 0 to less than 1, in parts per million."""
    found = number(value, where, NOMINAL)
    if found >= NOMINAL:
        raise WorldError(f"{where} must be below 1.")
    return found


def flag(mapping: Mapping[str, object], key: str, default: bool) -> bool:
    value = mapping.get(key, default)
    if not isinstance(value, bool):
        raise WorldError(f"{key} must be true or false, not {value!r}.")
    return value


def count(key: str, where: str, least: int = 1) -> int:
    """A key of a table that is a whole number."""
    found = int(key) if key.isdecimal() and len(key) < 10 else 0
    if found < least:
        raise WorldError(
            f"{where} must have whole numbers of at least {least} as its keys, not {key!r}."
        )
    return found


def parts_by_count(mapping: Mapping[str, object], key: str, where: str, least: int) -> Table:
    """`{2: 0.765, 4: 0.53}`: what is left of the speed at each count."""
    rows, at = rows_of(mapping, key, where), f"{where}.{key}"
    return {count(row, at, least): part(rows[row], f"{at}.{row}") for row in rows}


def parts_by_model(rows: Mapping[str, object], where: str, least: int) -> dict[str, Table]:
    """The same for each model named, under the name that tables use."""
    return {table_name(model): parts_by_count(rows, model, where, least) for model in rows}
