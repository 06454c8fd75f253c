"""Why a run failed, from its exit code, its signal, and what its ranks wrote last.

The cause is looked for before what followed from it: the first rank that failed, the first exception of a
chain, the exception and not a word in the lines before it. What a launcher or the other ranks say about the
failure of one rank counts only where nothing else is found. What matches nothing is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainmaster.failures.log_parts import LoggedException, LogLine, LogParts, parts_of
from trainmaster.failures.reason_table import LOST_REASON, FailureReason, ReasonTable, Strength
from trainmaster.failures.write_calls import is_write_message, is_written
from trainmaster.model.failure import SIGNALS, UNKNOWN_REASON, Blame, Failure

LAST_LINES = 60
"""Lines before the end of a log in which signatures are looked for, where no exception was printed."""
SHOWN_LINES = 5
SHOWN_CHARS = 400
NOT_FOUND_REASON = "command-not-found"
BRIEF_MS = 2_000
"""Within which a command that cannot be started ends: what ran longer has begun."""
WRAPPER = re.compile(
    r"ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException|^SystemExit"
    r"|: Caught \w+ in (?:DataLoader|replica|pin memory)|RayTaskError|TrainingFailedError"
    r"|^(?:concurrent\.futures\.process\._?)?_?RemoteTraceback|ElasticAgent"
    r"|^(?:Base)?ExceptionGroup: .*\(\d+ sub-exceptions?\)$|[Ss]ee .{0,40}\broot cause\b|^[\w.]+: ?$"
)
"""Exceptions that only say that another process or thread failed."""
CHILD_SIGNAL = (
    re.compile(r"exitcode\s*:? ?\s*-(?P<number>\d+)\b"),
    re.compile(r"Signal (?P<number>\d+) \(SIG\w+\) received by PID"),
    re.compile(r"died with <Signals\.(?P<name>SIG\w+)"),
    re.compile(r"terminated with signal (?P<name>SIG\w+)"),
    re.compile(r"returned non-zero exit status (?P<code>1[2-5]\d)\b"),
    re.compile(r"exited on signal (?P<number>\d+)"),
    re.compile(r"exits with return code = -(?P<number>\d+)"),
)
GANG = re.compile(
    r"^\[(?:rank|default)\d|torch(?:run|[./]distributed)|ProcessGroup|\bRANK\b|c10d|TCPStore"
    r"|(?i:gloo|nccl|\bmpi|deepspeed|accelerate)"
)
"""What a launcher within a run of one rank, or a rank of it, writes."""
CHILD_RANK = re.compile(r"^\s*rank\s*: (?P<rank>\d+) \(local_rank")
ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\)")


@dataclass(frozen=True, slots=True)
class RankLog:
    """The last lines that a rank wrote."""

    rank: int
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about the end of a run."""

    exit_code: int | None = None
    signal: str = ""
    rank: int | None = None
    """The rank that ended first without success, as its engine saw it."""
    lines: tuple[str, ...] = ()
    """What that rank wrote last."""
    why: str = ""
    """What the engine says about the end: one sentence."""
    others: tuple[RankLog, ...] = ()
    """What the other ranks wrote last."""
    ranks: int | None = None
    """How many the run had, if that is known."""
    ran_ms: int | None = None
    is_lost: bool = False
    """Its node or supervisor went away: it did not end by itself."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason that part of the evidence shows."""

    row: FailureReason | None
    """None: something that the table does not have, an exception mostly."""
    lines: tuple[str, ...] = ()
    rank: int | None = None
    path: str = ""
    at: int = 0
    """Where in the log it is, ..."""
    stream: str = ""
    """... and whose output, where the log is that of several."""
    is_traced: bool = False
    """Whether it is an exception with its traceback."""

    @property
    def is_explicit(self) -> bool:
        return self.row is not None and self.row.strength is Strength.EXPLICIT

    @property
    def is_late(self) -> bool:
        return self.row is not None and self.row.strength is Strength.LATE

    @property
    def is_cause(self) -> bool:
        """Whether it is more than the symptom of a failure elsewhere."""
        return self.row is None or self.row.strength is not Strength.SYMPTOM


def classify(evidence: Evidence, table: ReasonTable) -> Failure:
    """The reason of a failure; `unknown` where nothing in the table matches."""
    if evidence.ranks == 1 and not any(GANG.search(line) for line in evidence.lines):
        table = table.of_one_rank
    said = _first(_on_line(LogLine(0, evidence.why), table), lambda each: each.is_explicit)
    parts = parts_of(evidence.lines)
    own = _named(_in_log(parts, table), evidence.lines)
    if said is not None:
        shown = (evidence.why,) if own is None or own.row is not said.row else own.lines
        return _failure(Finding(said.row, shown, path=said.path), evidence)
    if own is not None and own.is_cause:
        return _failure(own, evidence)
    elsewhere = _in_others(evidence.others, table, is_symptom=own is not None)
    if elsewhere is not None:
        found, process = elsewhere
        rank = process if found.rank is None else found.rank
        return _failure(replace(found, rank=rank), evidence, process)
    if own is not None:
        return _failure(own, evidence)
    signal = evidence.signal or _child_signal(evidence.lines)
    row = _by_end(evidence, signal, table)
    if row is None and evidence.is_lost:
        row = table.by_key.get(LOST_REASON)
    shown = _last_words(parts) if row is None else _signal_line(evidence)
    if evidence.is_lost and evidence.why:
        shown = (evidence.why,)
    return _failure(Finding(row, shown, _root_rank(evidence.lines)), evidence)


def _in_others(
    others: Sequence[RankLog], table: ReasonTable, *, is_symptom: bool
) -> tuple[Finding, int] | None:
    """The cause that another process shows, and which one; of unknown reason only beside a symptom."""
    found = [
        (each, other.rank)
        for other in others
        if (each := _named(_in_log(parts_of(other.lines), table), other.lines)) is not None
        and each.is_cause
    ]
    known = next((each for each in found if each[0].row is not None), None)
    if known is not None or not is_symptom:
        return known
    return next((each for each in found if each[0].is_traced), None)


def _last_words(parts: LogParts) -> tuple[str, ...]:
    """What is shown where nothing is known: the exception at the end, after what a child wrote before it."""
    last = parts.exceptions[-1:]
    told = tuple(line for each in last for line in (*each.frame, each.text))
    before = [line.text for line in parts.lines if not last or line.at < last[0].at]
    step = parts.progress
    if step is not None and not last and all(line.at < step.at for line in parts.lines):
        told = (step.text,)
    return (*before[len(told) - SHOWN_LINES :], *told)


def _signal_line(evidence: Evidence) -> tuple[str, ...]:
    """The line in which a launcher tells the signal of its child: that of its own end has none."""
    lines = () if evidence.signal else evidence.lines
    return next(((line.strip(),) for line in lines if _child_signal((line,))), ())


def _named(found: Finding | None, lines: Sequence[str]) -> Finding | None:
    """With the rank that a launcher names, where the lines themselves do not say theirs."""
    if found is None or found.rank is not None:
        return found
    return replace(found, rank=_root_rank(lines))


def _failure(found: Finding, evidence: Evidence, process: int | None = None) -> Failure:
    """`process`: whose output shows it, where that is not the one which ended first."""
    row = found.row
    rank = evidence.rank if found.rank is None else found.rank
    process = evidence.rank if process is None else process
    return Failure(
        reason=UNKNOWN_REASON if row is None else row.key,
        blame=Blame.UNKNOWN if row is None else row.blame,
        rank=rank,
        lines=tuple(_shown(found.lines)),
        exit_code=evidence.exit_code,
        signal=evidence.signal,
        path=found.path,
        process=None if process == rank else process,
    )


# -- one log ---------------------------------------------------------------------------------------------


def _in_log(parts: LogParts, table: ReasonTable) -> Finding | None:
    """What one log shows: by its exceptions, else by its lines; None: nothing at all."""
    fatal = tuple(_findings(parts.exceptions, table))
    cause = _cause(fatal)
    if cause is not None and cause.is_cause and not cause.is_late:
        return cause
    lines = _line_findings(parts.lines[-LAST_LINES:], table)
    by_line = lines[0] if lines else None
    if cause is not None and cause.is_late:
        is_told = by_line is not None and by_line.is_explicit and by_line.at < cause.at
        return by_line if is_told else cause
    if by_line is not None and by_line.is_cause and (cause is None or _is_before(by_line, cause)):
        return by_line
    if parts.exceptions:  # a launcher or another rank says that something failed: perhaps earlier
        earlier = _cause(tuple(_findings(parts.survived, table)))
        if earlier is not None and earlier.row is not None and earlier.is_cause:
            return earlier
    return cause or by_line


def _is_before(line: Finding, symptom: Finding) -> bool:
    """Whether a line is the cause of a symptom: it says more, or it came first."""
    return line.is_explicit or line.at < symptom.at


def _cause(found: Sequence[Finding]) -> Finding | None:
    """The first rank's last that is a cause (what it wrote before it survived), else the first symptom."""
    first = _first(found, lambda each: each.is_cause)
    if first is None:
        return _first(found, bool)
    own = [each for each in found if each.is_cause and each.stream == first.stream]
    return _first(reversed(own), lambda each: each.is_traced) or first


def _first(found: Iterable[Finding], test: Callable[[Finding], object]) -> Finding | None:
    return next((each for each in found if test(each)), None)


def _findings(exceptions: Sequence[LoggedException], table: ReasonTable) -> Iterator[Finding]:
    """What each chain of exceptions shows, first things first; wrappers show nothing."""
    for chain in _chains(exceptions):
        found = [_of_exception(each, table) for each in chain if not WRAPPER.search(each.text)]
        if found:
            explicit = _first(found, lambda each: each.is_explicit)
            known = _first(reversed(found), lambda each: each.row is not None and each.is_cause)
            yield replace(
                _where_raised(explicit or known or found[-1], found),
                stream=chain[0].stream,
                is_traced=any(each.frames for each in chain),
            )


def _where_raised(chosen: Finding, chain: Sequence[Finding]) -> Finding:
    """Of an exception that a pool raised again in its parent, the one of the worker itself."""
    text = chosen.lines[-1]
    alike = (each for each in chain if each.row is chosen.row and len(each.lines) > 1)
    return _first(alike, lambda each: each.lines[-1] == text) or chosen


def _chains(exceptions: Sequence[LoggedException]) -> Iterator[list[LoggedException]]:
    chain: list[LoggedException] = []
    for each in exceptions:
        if chain and not each.is_chained:
            yield chain
            chain = []
        chain.append(each)
    if chain:
        yield chain


def _of_exception(found: LoggedException, table: ReasonTable) -> Finding:
    """The row for the first line of its message, or an earlier explicit one for the rest of it."""
    shown = (*found.frame, found.text, *found.more)
    origin = "\n".join((*found.frames[-2:], found.text))
    row = next((row for row in table.rows if _match(row.origins, origin) is not None), None)
    if row is not None:
        return Finding(row, shown, found.rank, at=found.at)
    said = _row_for(found, found.text, table.rows)
    if said is None or said[0].strength is not Strength.EXPLICIT:
        rows = table.rows if said is None else table.rows[: table.rows.index(said[0])]
        said = _row_for(found, found.whole, [row for row in rows if _is_explicit(row)]) or said
    if said is None:
        said = _row_for(found, found.whole, table.rows)
    if said is None or said[0].strength is Strength.SYMPTOM:
        frames = "\n".join(found.frames)
        row = next((row for row in table.rows if _match(row.frames, frames) is not None), None)
        if row is not None or said is None:
            return Finding(row, shown, found.rank, at=found.at)
    path = "" if is_written(found.code) else _path(said[1])
    return Finding(said[0], shown, found.rank, path, found.at)


def _is_explicit(row: FailureReason) -> bool:
    return row.strength is Strength.EXPLICIT


def _row_for(
    found: LoggedException, text: str, rows: Iterable[FailureReason]
) -> tuple[FailureReason, re.Match[str]] | None:
    """The first row that has an exception of this text."""
    matches = (
        (row, _match(row.exceptions if found.is_own else (*row.exceptions, *row.words), text))
        for row in rows
    )
    return next(((row, match) for row, match in matches if match is not None), None)


def _line_findings(lines: Sequence[LogLine], table: ReasonTable) -> list[Finding]:
    """What lines show that belong to no traceback: explicit rows first, then as they come."""
    found = [each for line in lines for each in _on_line(line, table)]
    return sorted(found, key=lambda each: not each.is_explicit)


def _on_line(line: LogLine, table: ReasonTable) -> Iterator[Finding]:
    for row in table.rows:
        match = _match(row.lines, line.text)
        if match is not None:
            path = "" if is_write_message(line.text) else _path(match)
            yield Finding(row, (line.text.strip(),), line.rank, path, line.at)
            return


def _match(patterns: Iterable[re.Pattern[str]], text: str) -> re.Match[str] | None:
    return next((found for each in patterns if (found := each.search(text)) is not None), None)


def _path(match: re.Match[str]) -> str:
    return (match.groupdict().get("path") or "").strip("'\"")


def _shown(lines: Iterable[str]) -> Iterator[str]:
    for _, line in zip(range(SHOWN_LINES), lines, strict=False):
        yield line if len(line) <= SHOWN_CHARS else f"{line[: SHOWN_CHARS - 3]}..."


# -- ends without a word -----------------------------------------------------------------------------------


def _by_end(evidence: Evidence, signal: str, table: ReasonTable) -> FailureReason | None:
    """The row of an exit code or a signal."""
    for row in table.rows:
        if signal and signal in row.signals:
            return row
        if evidence.exit_code in row.exit_codes and (
            row.key != NOT_FOUND_REASON or _is_never_begun(evidence)
        ):
            return row
    return None


def _is_never_begun(evidence: Evidence) -> bool:
    """Whether nothing shows that its program began: it wrote nothing, and ended at once."""
    is_silent = not any(line.strip() for line in evidence.lines)
    return is_silent and (evidence.ran_ms is None or evidence.ran_ms <= BRIEF_MS)


def _child_signal(lines: Sequence[str]) -> str:
    """The signal that ended a child of a launcher, as the launcher tells it."""
    for line in lines:
        for pattern in CHILD_SIGNAL:
            match = pattern.search(line)
            if match is None:
                continue
            named = match.groupdict()
            if named.get("name"):
                return str(named["name"])
            number = int(named.get("number") or int(named["code"]) - 128)
            return SIGNALS.get(number, "")
    return ""


def _root_rank(lines: Sequence[str]) -> int | None:
    """The rank that torchrun names as the first that failed."""
    is_root = False
    for line in lines:
        is_root = is_root or ROOT_CAUSE.search(line) is not None
        match = CHILD_RANK.match(line)
        if is_root and match is not None:
            return int(match["rank"])
    return None
