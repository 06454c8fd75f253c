"""Amounts as Slurm writes them: times, sizes, nodes, GPUs, arrays."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainmaster.config.units import MOST_ELEMENTS

WITHOUT_LIMIT = frozenset({"unlimited", "infinite", "0", "-1"})
SIZES = {"": 1 << 20, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
"""Bytes of a unit; Slurm's is a mebibyte."""
MIG = re.compile(r"\d+g\.\d+gb.*")
TYPE = re.compile(r"[a-z]{1,4}\d+\w*")


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A number of GPUs, perhaps of a type."""

    count: int
    type: str = ""


def seconds_of(text: str) -> int | None:
    """A time: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS; None: without limit."""
    text = text.strip().lower()
    if text in WITHOUT_LIMIT:
        return None
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        raise ValueError(f"{text!r} is not a time such as 90, 1:30:00 or 2-12")
    days, *rest = (None if part is None else int(part) for part in found.groups())
    first, second, third = rest
    assert first is not None
    if days is not None:  # D-HH[:MM[:SS]]
        return ((days * 24 + first) * 60 + (second or 0)) * 60 + (third or 0)
    if third is not None:
        return (first * 60 + (second or 0)) * 60 + third
    return first * 60 + (second or 0)


def bytes_of(text: str) -> int:
    """A size: 16G, 4000 (MiB), 512M, 2T; 0 is all that there is."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?[cn]?", text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a size such as 16G or 4000")
    return round(float(found[1]) * SIZES[found[2]])


def nodes_of(text: str) -> tuple[int, int]:
    """The fewest and the most nodes: 4, 2-8, 4k."""
    found = re.fullmatch(r"(\d+)(k?)(?:-(\d+)(k?))?(?::\d+)?", text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise ValueError(f"{text!r} is not a number of nodes such as 4 or 2-8")
    least = int(found[1]) * (1024 if found[2] else 1)
    most = int(found[3]) * (1024 if found[4] else 1) if found[3] else least
    return least, max(least, most)


def count_of(text: str) -> int:
    """A number above 0."""
    if not re.fullmatch(r"\d{1,7}", text.strip()) or int(text) == 0:
        raise ValueError(f"{text!r} is not a number above 0")
    return int(text)


def gpus_of(text: str) -> GpuRequest:
    """The value of --gpus and its kin: 4, a100:4, a100."""
    kind, colon, count = text.strip().rpartition(":")
    if not colon and not text.strip().isdigit():
        return GpuRequest(1, type_of(text.strip()))
    if not count.isdigit():
        raise ValueError(f"{text!r} is not a number of GPUs such as 4 or a100:4")
    return GpuRequest(int(count), type_of(kind))


def gres_of(text: str) -> tuple[str, GpuRequest]:
    """One of the parts of --gres: gpu, gpu:2, gpu:a100:4, gres/gpu:2, mps:50, shard:2."""
    name, _, rest = text.strip().removeprefix("gres/").replace("=", ":").partition(":")
    rest = re.sub(r"\(.*\)$", "", rest)  # gpu:2(S:0-1), the sockets
    if not rest:
        return name, GpuRequest(1)
    return name, gpus_of(rest)


def type_of(text: str) -> str:
    """A GPU type as nodes call it here: A100 for a100, MIG profiles as they are."""
    if not text or MIG.fullmatch(text):
        return text
    return text.upper() if TYPE.fullmatch(text) else text


def array_of(text: str) -> tuple[list[int], int | None]:
    """The indices of --array, and how many at a time: 0-15, 1,3,5, 0-100:10, 1-99%8."""
    listed, percent, most = text.strip().strip("[]").partition("%")
    limit = count_of(most) if percent else None
    indices: list[int] = []
    for piece in listed.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", piece.strip())
        if found is None:
            raise ValueError(f"{piece!r} is not an index or a range such as 3, 0-15 or 0-100:10")
        first = int(found[1])
        last, step = int(found[2] or first), int(found[3] or 1)
        if last < first or step < 1 or last - first > MOST_ELEMENTS * step:
            raise ValueError(f"{piece!r} is not a range from a smaller to a larger index")
        indices += range(first, last + 1, step)
    return sorted(set(indices)), limit


def duration(seconds: int) -> str:
    """A length of time as job files write it: 1d12h, 90s."""
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def size(count: int) -> str:
    """A size as job files write it, rounded up to a mebibyte: 16G, 4000M."""
    mebibytes = max(1, -(-count // (1 << 20)))
    return f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M"


def indices_text(indices: list[int], limit: int | None) -> str:
    """An array as job files write it: 0-15%4, 0,4,8,12; a number alone would be a count there."""
    pieces: list[str] = []
    at = 0
    while at < len(indices):
        end = at
        while end + 1 < len(indices) and indices[end + 1] == indices[end] + 1:
            end += 1
        is_single = end == at and len(indices) > 1
        pieces.append(f"{indices[at]}" if is_single else f"{indices[at]}-{indices[end]}")
        at = end + 1
    return ",".join(pieces) + (f"%{limit}" if limit is not None else "")
