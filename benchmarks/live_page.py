"""The measurements of the live manager as a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.live_starts import API, FLOOR

Found = dict[str, Any]


def page(found: Found) -> str:
    """All of it in Markdown."""
    return "\n".join([*_lines(found), ""])


def _lines(found: Found) -> Iterator[str]:
    yield "# The live manager: starts, many jobs, memory"
    yield ""
    yield "Written by `python -m benchmarks.live` (`make bench-live`)."
    yield ""
    yield (
        f"Measured {found['date']} on {found['machine']}, Python {found['python']}; an fsync of 4 KiB"
        f" takes {found['fsync_ms']} ms there; load average before {found['load_before']}, after"
        f" {found['load_after']}."
    )
    for part, told in PARTS.items():
        if part in found:
            yield ""
            yield from told(found[part])


def _starts(rows: list[Found]) -> Iterator[str]:
    yield "## Starting an empty job"
    yield ""
    yield (
        "*Latency*: from the request to the program's own clock (`sh` that becomes `date`), one job after"
        " another. *Starts per second*: many empty jobs asked for at once, as an array where there is one,"
        " on all cores, from the request to the last start. *Done*: until the client knows that all"
        " have ended."
    )
    yield ""
    yield (
        "| | latency median | p95 | against Popen | against Trainmaster | starts/s | against Trainmaster"
        " | jobs | done |"
    )
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    by_name = {row["name"]: row for row in rows}
    for row in rows:
        yield _start(row, by_name[FLOOR], by_name[API])
    yield ""
    yield "What a start includes:"
    yield ""
    for row in rows:
        yield f"- {row['name']}: {row['includes']}."


def _start(row: Found, floor: Found, ours: Found) -> str:
    if row["absent"]:
        return f"| {row['name']} | absent: {row['absent']} | | | | | | | |"
    latency, burst = row["latency"], row["burst"]
    cells = [
        row["name"],
        f"{latency['median_ms']} ms",
        f"{latency['p95_ms']} ms",
        _times(latency["median_ms"], floor["latency"]["median_ms"]),
        _times(latency["median_ms"], ours["latency"]["median_ms"]),
    ]
    if burst is None:
        cells += ["", "", "", ""]
    else:
        ratio = _times(burst["starts_per_s"], ours["burst"]["starts_per_s"])
        cells += [str(burst["starts_per_s"]), ratio, str(burst["jobs"]), f"{burst['took_s']} s"]
    return f"| {' | '.join(cells)} |"


def _times(one: float, other: float) -> str:
    ratio = one / other
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:,.0f}x"


def _load(rows: list[Found]) -> Iterator[str]:
    count = rows[0]["jobs"]
    yield f"## {count:,} jobs at once"
    yield ""
    yield (
        "Submitted while all slots are taken, so that all of them wait; none was lost. *Others* is"
        " somebody who asks for one job's sheet every 50 ms meanwhile."
    )
    yield ""
    yield "| submitted | all durable after | jobs/s | others: median | worst |"
    yield "|---|---:|---:|---:|---:|"
    for row in rows:
        others = row["others"]
        yield (
            f"| in {row['way']} | {row['took_s']} s | {row['jobs_per_s']:,} |"
            f" {others['median_ms']} ms | {others['worst_ms']} ms |"
        )
    for row in rows:
        if "queue" in row:
            yield ""
            yield from _queue(row["queue"], count)


def _queue(queue: Found, count: int) -> Iterator[str]:
    yield f"With {count:,} waiting (aim: a pass under 100 ms):"
    yield ""
    yield "| policy | mean pass | longest below | submitting one more |"
    yield "|---|---:|---:|---:|"
    for each in queue["passes"]:
        yield (
            f"| {each['policy']} | {each['mean_ms']} ms | {each['longest_below_ms']:g} ms |"
            f" {each['submit_ms']} ms |"
        )
    lists = queue["lists"]
    yield ""
    yield (
        f"Listing them (aim: 200 ms): all by the API, ten pages, {lists['api_all_ms']} ms; a page of 100"
        f" {lists['api_page_of_100_ms']} ms. The whole command `trainmaster ps`: {lists['command_ms']} ms;"
        f" with `--limit 50` {lists['command_limit_50_ms']} ms."
    )
    yield ""
    yield f"The daemon has {queue['memory']['rss_mib']} MiB then."


def _ended(found: Found) -> Iterator[str]:
    every = found["grown"][-1]["ended"]
    yield f"## Memory with {every:,} jobs that have ended"
    yield ""
    yield (
        f"All under one daemon. The first {found['really_ran']:,} really ran; the others were submitted in"
        " arrays, waited, and were cancelled. Ended jobs are in the store, not in memory."
    )
    yield ""
    yield "| jobs that have ended | daemon's memory |"
    yield "|---:|---:|"
    for each in found["grown"]:
        yield f"| {each['ended']:,} | {each['rss_mib']} MiB |"
    lists = found["lists"]
    yield ""
    yield (
        f"A daemon that is started on that store has {found['restarted']['rss_mib']} MiB. The database has"
        f" {found['database_mib']} MiB; a page of 100 jobs takes {lists['api_page_of_100_ms']} ms,"
        f" `trainmaster ps` {lists['command_ms']} ms."
    )


def _commands(found: dict[str, float]) -> Iterator[str]:
    yield "## The command line"
    yield ""
    yield "Whole commands without a daemon, Python's start included (aim: `--help` in 300 ms):"
    yield ""
    yield "| command | median |"
    yield "|---|---:|"
    for name, took in found.items():
        yield f"| `trainmaster {name}` | {took} ms |"


PARTS = {"starts": _starts, "load": _load, "ended": _ended, "commands": _commands}
