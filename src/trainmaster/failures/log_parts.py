"""The end of a log, taken apart: the exceptions that ended programs, and the lines between them.

A log may hold the output of several ranks (torchrun writes `[rank3]:` before each line), progress bars,
colours, and tracebacks that the program survived. What follows a survived traceback is progress.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

MOST_LINE = 1000
"""Characters of a line that are looked at."""
MOST_MORE = 12
"""Lines of a message after its first."""
MOST_FRAMES = 30
PLACE = 'File "'
"""How the place of a frame begins."""
LIBRARY = re.compile(r"(?:site|dist)-packages/|/lib(?:64)?/python\d|<frozen |<string>")
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STREAM = re.compile(
    r"^(?:\[(?:rank|default|Rank |\d+,)(?P<rank>\d+)\](?:<std(?:err|out)>)?: ?"
    r"|\((?:\w+ )?(?:pid|rank)=(?P<pid>\d+)[^)]*\) ?)"
)
"""What launchers write before each line of a rank."""
LOGGED = re.compile(r"^\S.*[\]>:|-] *$")
"""The end of what a logger writes before a message: a bracket, a colon, a bar or a dash."""
GROUP = re.compile(r"^ {2,}(?:\||\+(?= Exception Group)) ?|^ {2,}\+-[-\d. +]*$")
"""What Python draws before the lines of a group of exceptions, and between them."""
DIGITS = re.compile(r"(\d+)")
HEADER = "Traceback (most recent call last)"
QUOTED = re.compile(r'(?:[^"\\]|\\.)*(?=")')
"""The rest of a string of JSON."""
HANDLING = re.compile(
    r"^(?:During handling of the above exception|The above exception was the direct)"
)
TYPED = r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*"
CLOSING = re.compile(r"^(?:(?:[A-Za-z_]\w*\.)+\w+|[A-Z]\w*[a-z]\w*)(?:\[[^\]]*\])?(?:: .*|:)?$")
"""The line after the frames of a traceback: `torch.OutOfMemoryError: CUDA out of memory. ...`"""
BARE = re.compile(
    rf"^(?:E\s+|.*?(?:[\]>|:-] +|\b(?:[Uu]ncaught|[Uu]nhandled|[Ff]atal)(?: exception| error)? +))?"
    rf"(?P<text>(?:{TYPED}\.)?\w+(?:Error|Exception|Interrupt|Timeout)(?:: .*|:)?)$"
)
"""An exception whose traceback is not there: cut off, drawn by another tool, or written by a logger."""
NAMES_ONE = re.compile(r"Error|Exception|Interrupt|Timeout|what\(\)|terminate called")
"""Lines without any of this are not about an exception: most lines, so this is looked for first."""
FRAME = re.compile(r'^\s+(?:File "| {4})')
"""A frame within a message."""
ASIDE = re.compile(
    r"^Exception ignored (?:in|on|while)\b|^--- Logging error ---|^Error in atexit\._run_exitfuncs"
)
"""What Python writes before the traceback of an exception that ends nothing."""
THREAD = re.compile(r"^Exception in thread \S")
"""Before the traceback of a thread: after an exception, it follows from the end of the program."""
UNRAISED = re.compile(r"^object (?:address|refcount|type|type name|repr) *: |^lost sys\.stderr")
"""What Python writes of such a one when it can write no traceback any more."""
WHAT = re.compile(r"^\s*what\(\):\s*(?P<text>.*)$")
TERMINATE = re.compile(r"terminate called after throwing an instance of '(?P<type>[^']+)'")
NOISE = re.compile(
    r"^\s*$|^\s*frame #\d+|^\s*#\d+ |^wandb: |^-+$|^=+$|^\x22{3}$|^\s*\^+|^\s*~+\^*"
    r"|^[EWIF]\d{4} |^Exception raised from |^\s*\[?0x[0-9a-f]+"
)
"""Lines that say nothing: frames of native stacks, rulers; ..."""
BAR = "%|"
"""... and progress bars."""
PROGRESS = re.compile(
    r"\b(?:step|epoch|iter|iteration|batch|it)s?\b['\"]?\W{0,3}\d|\bloss\b['\"]?\W{0,4}\d"
    r"|^(?:resum|continuing|skipping)",
    re.IGNORECASE,
)
"""A program that writes this goes on, ..."""
ENDING = (
    *("fail", "error", "abort", "interrupt", "crash", "stop", "exit", "terminat", "kill"),
    *("saved", "saving", "checkpoint", "exception"),
)
"""... unless it is about its end."""
SURVIVES = 1
"""Lines of progress after which a program has survived what it wrote before, ..."""
ENDED_SURVIVES = 2
"""... also where it wrote something about its end after that."""
RECOVERED = re.compile(
    r"\b(?:skipp(?:ed|ing)|ignor(?:ed|ing)|continuing|fall(?:ing|s)? back|fell back|recover(?:ed|ing)"
    r"|caught and|handled|(?:going|running|proceeding|carrying) (?:on|offline|without)|halv(?:ed|ing))\b",
    re.I,
)
"""How a program says that it gets over an error, ..."""
RETRIED = re.compile(r"\b(?:retry(?:ing)?|try(?:ing)? again)\b", re.I)
"""... or that it tries to."""
TALLY = re.compile(
    r"^\W{0,3}(?:hint|note|tip|help|example) ?:|(?:: |= ?)(?:0|0\.0+|no|none|false|ok)\W*$|\b0 times\b"
    r"|\b(?:0|no|zero) (?:\w+ ){0,2}(?:errors?|faults?|failures?|kills?|events?)\b"
    r"|(?:kills?|killed|errors?|faults?|failures?|warnings?|oom|events?)\b\W{0,3}0\b(?!x)",
    re.I,
)
"""A count of what did not happen, or what to do if something should."""
LEVEL = re.compile(
    r"^.{0,60}?(?<![\w=])(?:WARN(?:ING)?|INFO|DEBUG)\b|\b[A-Z]\w{0,40}Warning: "
    r"|^\[?[WI]\d{3,4}[ \]]|^\[[WI] "
)
"""A line of a logger that is not about an error."""
WARNING = re.compile(r"^.{0,60}?\bWARN(?:ING)?\b")
NCCL_WARN = re.compile(r"NCCL WARN")


@dataclass(frozen=True, slots=True)
class LoggedException:
    """An exception that was printed."""

    at: int
    """Where in the log its first line is."""
    text: str
    """`Type: message`, the first line of it."""
    more: tuple[str, ...] = ()
    """The rest of the message."""
    frames: tuple[str, ...] = ()
    """Its traceback, as far as it is needed: places, each with its code."""
    rank: int | None = None
    is_chained: bool = False
    """It was raised while the one before was handled."""
    is_warned: bool = False
    """A logger wrote it as a warning: another one that comes after it is what ended the program."""
    is_recovered: bool = False
    """The line before it says that the program got over it: so it has, where it wrote more afterwards."""
    stream: str = ""
    """Whose output it is part of, where the log is that of several."""

    @property
    def frame(self) -> tuple[str, ...]:
        """The last frame of its traceback in the program itself, and not in a library."""
        return self._frames_since_own[:2]

    @property
    def code(self) -> tuple[str, ...]:
        """The lines of code of that frame and of those after it."""
        return tuple(line for line in self._frames_since_own if not line.startswith(PLACE))

    @property
    def _frames_since_own(self) -> tuple[str, ...]:
        places = [at for at, line in enumerate(self.frames) if line.startswith(PLACE)]
        own = [at for at in places if not LIBRARY.search(self.frames[at])] or places
        return self.frames[own[-1] :] if own else ()

    @property
    def is_own(self) -> bool:
        """Whether the program itself raised it, and no library: its message is in words of its own."""
        *_, place, code = ("", "", *self.frames)
        return code.startswith("raise ") and not LIBRARY.search(place)

    @property
    def is_unsaid(self) -> bool:
        """Whether its message has only begun: "Graph execution error:", and then its own frames."""
        return self.whole.endswith(":") and len(self.more) < MOST_MORE

    @property
    def whole(self) -> str:
        return "\n".join((self.text, *self.more))


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that is not part of a traceback."""

    at: int
    text: str
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class LogParts:
    """A log, taken apart."""

    exceptions: tuple[LoggedException, ...]
    """Those that nothing followed that shows that the program went on."""
    survived: tuple[LoggedException, ...]
    lines: tuple[LogLine, ...]
    """The lines of its end that are neither progress nor noise nor warnings."""
    progress: LogLine | None = None
    """The last line of progress."""


@dataclass(slots=True)
class _Stream:
    """The lines of one rank in a log."""

    name: str = ""
    rank: int | None = None
    exceptions: list[LoggedException] = field(default_factory=list)
    survived: list[LoggedException] = field(default_factory=list)
    lines: list[LogLine] = field(default_factory=list)
    is_open: bool = False
    """A traceback has begun whose exception has not come yet."""
    is_chained: bool = False
    frames: list[str] = field(default_factory=list)
    instance: str = ""
    """The C++ type that `terminate` named."""
    takes_more: int = 0
    """Lines that may still belong to the last message."""
    takes_indented: bool = False
    """Only indented ones, after an empty line."""
    is_warned: bool = False
    """The line before was a logger's warning, ..."""
    is_recovered: bool = False
    """... or said how the program gets over what comes."""
    is_aside: bool = False
    """The traceback that comes is of an exception that ends nothing."""
    steps: int = 0
    """Lines of progress since the last exception."""
    progress: LogLine | None = None
    is_ending: bool = False
    """A line about its end came since the last exception."""
    last_at: int = -1
    """Where its last line is that belongs to no traceback."""


def parts_of(log: Iterable[str]) -> LogParts:
    """The log taken apart, each rank's lines by themselves."""
    streams: dict[str, _Stream] = {}
    for at, (name, rank, line) in enumerate(_cleaned(log)):
        stream = streams.setdefault(name, _Stream(name, rank))
        _take(stream, at, line)
    for stream in streams.values():
        _survive_again(stream)
    found = sorted((e for s in streams.values() for e in s.exceptions), key=lambda e: e.at)
    survived = sorted((e for s in streams.values() for e in s.survived), key=lambda e: e.at)
    lines = sorted((line for s in streams.values() for line in s.lines), key=lambda e: e.at)
    steps = [stream.progress for stream in streams.values() if stream.progress is not None]
    progress = max(steps, key=lambda line: line.at, default=None)
    return LogParts(tuple(found), tuple(survived), tuple(lines), progress)


def _cleaned(log: Iterable[str]) -> Iterator[tuple[str, int | None, str]]:
    """Each line without colours and without what its launcher wrote before it: (stream, rank, line)."""
    own: dict[str, re.Pattern[str]] = {}
    is_group = False
    for raw in log:
        text = raw[: 8 * MOST_LINE]
        for piece in _pieces(COLOUR.sub("", text) if "\x1b" in text else text):
            line = piece.rstrip()[:MOST_LINE]
            prefix = STREAM.match(line)
            stream, rank = "", None
            if prefix is not None:
                stream, rank = prefix[0], prefix["rank"]
                line = line[prefix.end() :]
            learned = _prefix(line)
            if learned is not None:
                own[stream] = learned
            logged = own[stream].match(line) if stream in own else None
            line = line if logged is None else line[logged.end() :]
            is_group = is_group or "+ Exception Group " in line
            drawn = GROUP.match(line) if is_group else None
            line = line if drawn is None else line[drawn.end() :]
            yield stream, None if rank is None else int(rank), line


def _pieces(line: str) -> list[str]:
    """A line as its writer meant it: progress bars write over themselves, JSON has tracebacks in one line."""
    before, header, after = line.partition(HEADER)
    if not header or "\\n" not in after:
        return line.split("\r")
    quoted = QUOTED.match(after)
    message = after if quoted is None else quoted[0]
    return [before + header, *message.replace('\\"', '"').split("\\n")[1:]]


def _prefix(line: str) -> re.Pattern[str] | None:
    """What a logger writes before each line, learned from the first line of a traceback."""
    before, header, _ = line.partition(HEADER)
    if not header or not LOGGED.match(before):
        return None
    return re.compile(
        "".join(r"\d+" if p.isdigit() else re.escape(p) for p in DIGITS.split(before))
    )


def _take(stream: _Stream, at: int, line: str) -> None:
    if HEADER in line:
        stream.is_open, stream.frames, stream.takes_more = True, [], 0
        return
    if HANDLING.match(line):
        stream.is_chained, stream.takes_more = True, 0
        return
    if UNRAISED.match(line):
        return
    if ASIDE.match(line) or (stream.exceptions and THREAD.match(line)):
        stream.is_aside, stream.is_open, stream.takes_more = True, False, 0
        return
    if stream.is_open:
        if line[:1] in (" ", "\t", "│", "|", "╭", "╰", "") or _is_noise(line):
            _take_frame(stream, line)
            return
        if CLOSING.match(line) and not LEVEL.match(line):
            _close(stream, at, line)
            return
    text = _bare(stream, line)
    if text:
        _close(stream, at, text)
        return
    if stream.takes_more and not line.strip():
        stream.takes_indented = not stream.exceptions[-1].is_unsaid
        return
    if stream.takes_more and FRAME.match(line):
        return
    is_indented = line[:1] in (" ", "\t")
    is_more = is_indented or (not stream.takes_indented and not PROGRESS.search(line))
    if stream.takes_more and is_more and not _is_noise(line):
        last = stream.exceptions[-1]
        stream.exceptions[-1] = replace(last, more=(*last.more, line.strip()))
        stream.takes_more -= 1
        if is_indented:
            return
    else:
        stream.takes_more = 0
    _take_line(stream, at, line)


def _is_noise(line: str) -> bool:
    return BAR in line or NOISE.match(line) is not None


def _take_frame(stream: _Stream, line: str) -> None:
    """Remember a frame of a traceback: its place, and the first line of its code."""
    text = line.strip()
    is_place = text.startswith(PLACE)
    is_code = bool(stream.frames) and stream.frames[-1].startswith(PLACE) and bool(text)
    if is_place or (is_code and not _is_noise(line)):
        stream.frames = [*stream.frames[-2 * MOST_FRAMES :], text]


def _bare(stream: _Stream, line: str) -> str:
    """The exception of a line that stands without a traceback."""
    if not NAMES_ONE.search(line) or LEVEL.search(line):
        return ""
    named = TERMINATE.search(line)
    if named is not None:
        stream.instance = named["type"]
        return ""
    what = WHAT.match(line)
    if what is not None and stream.instance:
        text, stream.instance = f"{stream.instance}: {what['text']}", ""
        return text
    bare = BARE.match(line)
    return "" if bare is None else bare["text"]


def _close(stream: _Stream, at: int, text: str) -> None:
    frames = tuple(stream.frames)
    found = LoggedException(
        at, text, (), frames, stream.rank, stream.is_chained, stream=stream.name
    )
    stream.is_open, stream.is_chained, stream.frames = False, False, []
    if stream.is_aside:
        stream.survived.append(found)
        stream.is_aside, stream.takes_more = False, 0
        return
    if found.is_chained and stream.exceptions:
        before = stream.exceptions[-1]
        found = replace(found, is_warned=before.is_warned, is_recovered=before.is_recovered)
    else:
        found = replace(found, is_warned=stream.is_warned, is_recovered=stream.is_recovered)
        if frames:
            _survive(stream, lambda each: each.is_warned or each.is_recovered)
    stream.is_warned, stream.is_recovered = False, False
    stream.exceptions.append(found)
    stream.takes_more, stream.takes_indented, stream.steps = MOST_MORE, False, 0
    stream.is_ending = False


def _survive(stream: _Stream, test: Callable[[LoggedException], bool]) -> None:
    """The exceptions for which the test is true did not end the program."""
    survived = [each for each in stream.exceptions if test(each)]
    if survived:
        stream.survived += survived
        stream.exceptions = [each for each in stream.exceptions if not test(each)]
        stream.takes_more = 0


def _survive_again(stream: _Stream) -> None:
    """What it survived before it survives each time, if it wrote more afterwards."""
    known = {(each.frames, each.text) for each in stream.survived if each.frames}
    _survive(stream, lambda each: each.at < stream.last_at and (each.frames, each.text) in known)


def _take_line(stream: _Stream, at: int, line: str) -> None:
    if _is_noise(line):
        return
    stream.last_at = at
    is_ending = any(word in line.lower() for word in ENDING)
    stream.is_ending = stream.is_ending or is_ending
    if PROGRESS.search(line) and not is_ending:
        stream.steps += 1
        stream.progress = LogLine(at, line.strip(), stream.rank)
        if stream.steps >= (ENDED_SURVIVES if stream.is_ending else SURVIVES):
            _survive(stream, lambda each: True)
            stream.lines.clear()
        return
    if not is_ending:
        _survive(stream, lambda each: each.is_recovered)
    is_warning = LEVEL.search(line) is not None and NCCL_WARN.search(line) is None
    stream.is_warned = WARNING.search(line) is not None
    stream.is_recovered = RECOVERED.search(line) is not None
    is_over = stream.is_recovered or RETRIED.search(line) or TALLY.search(line)
    if not is_warning and not is_over:
        stream.lines.append(LogLine(at, line, stream.rank))
