"""Amounts as people write them: times, sizes, GPUs, arrays, dependencies; each mistake is one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainmaster.config.validation import shown
from trainmaster.model.submission import Array, Dependency, When
from trainmaster.model.units import DAY, GIB, HOUR, MIB, MINUTE, SECOND, WHOLE
from trainmaster.text.control_characters import BASIC_UNSAFE

LONGEST_MS = 3_650 * DAY
"""Ten years: beyond it there is only a typing error."""
MOST_BYTES = 1 << 50
MOST_GPUS = 100_000
MOST_ELEMENTS = 100_000
LARGEST_INDEX = 10**9

NUMBER = r"\d{1,16}(?:\.\d{1,9})?"
TIME_UNITS = {"ms": 1, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
TIME_PART = re.compile(rf"({NUMBER})\s*(ms|[smhdw])\s*")
CLOCK = re.compile(r"(\d{1,6}):([0-5]\d)(?::([0-5]\d))?")
SIZE = re.compile(rf"({NUMBER})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
SIZE_UNITS = {"": 1, "k": 1 << 10, "m": MIB, "g": GIB, "t": 1 << 40}
RANGE = re.compile(r"\s*(\d{1,10})\s*-\s*(\d{1,10})\s*")
WHOLE_NUMBER = re.compile(r"\s*\d{1,10}\s*")
JOB_ID = re.compile(r"\d{1,15}(_\d{1,10})?")
JOB_NAME = re.compile(
    rf"[^\s\d:/{BASIC_UNSAFE}]([^:/{BASIC_UNSAFE}]{{0,98}}[^\s:/{BASIC_UNSAFE}])?"
)
"""A name that a dependency may be given by: never like an id."""
TYPE_NAME = re.compile(r"[A-Za-z0-9][\w.+ /|-]{0,99}")


def duration_ms(value: object) -> int:
    """`90s`, `30m`, `4h`, `2d`, `1h30m`, `1:30:00`; a number alone could be seconds or minutes."""
    text = _written(value)
    parts, clock = TIME_PART.findall(text), CLOCK.fullmatch(text)
    if re.fullmatch(NUMBER, text):
        raise ValueError(f"must be a length of time with its unit: {text}s or {text}m?")
    if parts and not TIME_PART.sub("", text):
        total = sum(float(number) * TIME_UNITS[unit] for number, unit in parts)
    elif clock:
        hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        total = hours * HOUR + minutes * MINUTE + seconds * SECOND
    else:
        raise ValueError(
            f"must be a length of time such as 90s, 30m, 4h, 2d or 1:30:00, not {shown(value)}"
        )
    if total > LONGEST_MS:
        raise ValueError(f"must be at most 3650d, not {shown(value)}")
    if round(total) < 1:
        raise ValueError(f"must be more than nothing, not {shown(value)}")
    return round(total)


def size_bytes(value: object) -> int:
    """`16GiB`, `16G`, `512M`, `4096B`; all prefixes are powers of 1024. A number alone could be anything."""
    text = _written(value)
    found = SIZE.fullmatch(text)
    if re.fullmatch(NUMBER, text):
        raise ValueError(f"must be a size with its unit: {text}G or {text}M?")
    if found is None:
        raise ValueError(f"must be a size such as 16GiB, 16G or 512M, not {shown(value)}")
    size = round(float(found[1]) * SIZE_UNITS[found[2].lower()])
    if not 1 <= size <= MOST_BYTES:
        raise ValueError(f"must be at least one byte and at most 1024T, not {shown(value)}")
    return size


def _written(value: object) -> str:
    """What somebody wrote, as text; empty for what is neither a text nor a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    return str(value).strip()


@dataclass(frozen=True, slots=True)
class Gpus:
    """How many GPUs, or which part of one, and of which type."""

    least: int
    most: int
    share: int = WHOLE
    type: str | None = None

    @property
    def is_part(self) -> bool:
        return self.share != WHOLE


def gpus_of(value: object) -> Gpus:
    """`8`, `2-8`, `0.5`, `H100:2`, `H100|A100:2-8`, `H100` for one of that type."""
    text = _written(value)
    kind, colon, amount = text.rpartition(":")
    if not colon and text and not text[0].isdigit() and text[0] not in "-+.":
        kind, amount = text, "1"
    if (kind or colon) and not TYPE_NAME.fullmatch(kind):
        raise _not_gpus(value)
    gpu_type = kind or None
    ranged = RANGE.fullmatch(amount)
    if ranged:
        least, most = int(ranged[1]), int(ranged[2])
        if not 1 <= least <= most:
            raise ValueError(
                f"must go from a smaller number (1 or more) to a larger, not {shown(value)}"
            )
    elif WHOLE_NUMBER.fullmatch(amount):
        least = most = int(amount)
        if least == 0:
            raise ValueError(
                "cannot be 0: a job needs a device to be placed on; ask for a part of one such as"
                " 0.1, or leave the field out for one"
            )
    else:
        return Gpus(1, 1, _part(amount, value), gpu_type)
    if most > MOST_GPUS:
        raise ValueError(f"must be at most {MOST_GPUS:,}, not {shown(value)}")
    return Gpus(least, most, WHOLE, gpu_type)


def _part(amount: str, value: object) -> int:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?|\.\d{1,9}", amount):
        raise _not_gpus(value)
    part = float(amount)
    if part == int(part) and 1 <= part <= MOST_GPUS:
        raise ValueError(
            f"must be a whole number without a point, or a part of one GPU, not {shown(value)}"
        )
    if part > 1:
        raise ValueError(
            f"must be whole GPUs or a part of one, not {shown(value)}: ask for {round(part) or 1}"
        )
    share = round(part * WHOLE)
    if share < 1:
        raise ValueError(f"must be at least a thousandth of a GPU, not {shown(value)}")
    return share


def _not_gpus(value: object) -> ValueError:
    return ValueError(
        "must be a number (8), a range (2-8), a part of one (0.5), or one of these after a type"
        f" (H100:2), not {shown(value)}"
    )


def array_of(value: object) -> Array:
    """`100` (0 to 99), `0-99`, `0-99%8` (8 at a time), `1,5,9-12`, or a list of indices."""
    if isinstance(value, list) and all(type(each) is int for each in value):
        return _array(tuple(value), None, value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _not_an_array(value)
    listed, percent, most = str(value).partition("%")
    limit = None
    if percent:
        if not WHOLE_NUMBER.fullmatch(most) or int(most) == 0:
            raise _not_an_array(value)
        limit = int(most)
    if WHOLE_NUMBER.fullmatch(listed):  # A number alone says how many.
        return _array(tuple(range(min(int(listed), MOST_ELEMENTS + 1))), limit, value)
    return _array(tuple(_indices(listed, value)), limit, value)


def _indices(listed: str, value: object) -> Iterator[int]:
    """`1,5,9-12`, but never many more than may be."""
    for piece in listed.split(","):
        ranged = RANGE.fullmatch(piece)
        if ranged and int(ranged[1]) <= int(ranged[2]):
            first = int(ranged[1])
            yield from range(first, min(int(ranged[2]), first + MOST_ELEMENTS) + 1)
        elif WHOLE_NUMBER.fullmatch(piece):
            yield int(piece)
        else:
            raise _not_an_array(value)


def _not_an_array(value: object) -> ValueError:
    return ValueError(
        "must be a number of elements (100), indices (0-99 or 1,5,9-12), both perhaps with how many"
        f" at a time (0-99%8), or a list of indices, not {shown(value)}"
    )


def _array(indices: tuple[int, ...], limit: int | None, value: object) -> Array:
    if not 1 <= len(indices) <= MOST_ELEMENTS:
        raise ValueError(f"must have 1 to {MOST_ELEMENTS:,} elements, not {shown(value)}")
    if not all(0 <= each <= LARGEST_INDEX for each in indices):
        raise ValueError(f"must have indices from 0 to {LARGEST_INDEX:,}, not {shown(value)}")
    if len(set(indices)) != len(indices):
        raise ValueError(f"names an index twice: {shown(value)}")
    return Array(indices, limit)


def dependencies_of(value: object) -> tuple[Dependency, ...]:
    """One or a list of `12`, `12:ok`, `12:any`, `12:fail`, `12_3`, `name`, `name:any`."""
    given = value if isinstance(value, list) else [value]
    found = tuple(_dependency(each) for each in given)
    if len(found) > MOST_ELEMENTS:
        raise ValueError(f"must name at most {MOST_ELEMENTS:,} jobs")
    return found


def _dependency(value: object) -> Dependency:
    if not isinstance(value, bool) and isinstance(value, int | str):
        job, colon, when = str(value).strip().rpartition(":")
        if colon and when in {each.value for each in When}:
            how = When(when)
        else:
            job, how = str(value).strip(), When.OK
        if JOB_ID.fullmatch(job) or JOB_NAME.fullmatch(job):
            return Dependency(job, how)
    raise ValueError(
        "must name jobs by id or name, such as 12, prep, 12:any (however it ends) or 12:fail (only if"
        f" it fails), not {shown(value)}"
    )
