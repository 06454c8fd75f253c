"""Errors as one sentence and an exit code; a traceback only with --debug or TRAINMASTER_DEBUG=1."""

from __future__ import annotations

import os

from trainmaster.errors import BAD_INPUT, FAILED, CommandError, system_reason

INTERRUPTED = 130

DEBUG = "TRAINMASTER_DEBUG"


_flags = {"debug": False}


def debug(is_wanted: bool) -> None:
    """Whether this command was called with `--debug`."""
    _flags["debug"] = is_wanted


def is_debugging() -> bool:
    return _flags["debug"] or os.environ.get(DEBUG, "") not in ("", "0")


def print_error(sentence: str) -> None:
    """One sentence to standard error."""
    from trainmaster.cli.support.console import write_error
    from trainmaster.text.formatting import as_sentence

    write_error(f"Error: {as_sentence(sentence)}\n")


def sentence_and_code(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code for any error."""
    from trainmaster.frames.user_errors import errors_with_sentences

    if isinstance(error, CommandError):
        return str(error), error.exit_code
    if isinstance(error, errors_with_sentences()):
        return str(error.args[0]), BAD_INPUT
    usage = getattr(error, "format_message", None)
    if usage is not None:
        return _usage_sentence(error, usage()), BAD_INPUT
    if isinstance(error, OSError):
        return f"the output cannot be written: {system_reason(error)}.", FAILED
    kind = type(error).__name__
    return (
        f"something in Trainmaster broke ({kind}: {error}); run it again as"
        " `trainmaster --debug …` to see where, and please report it.",
        FAILED,
    )


PARSERS_WORDS = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "not a whole number",
    "Input should be a valid number, unable to parse string as a number": "not a number",
    "Input should be": "it must be",
}
"""What the parser of the command line says, and what a colleague would."""


def _usage_sentence(error: Exception, message: str) -> str:
    """A usage error of the command line, with where to read more."""
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "trainmaster")
    line = " ".join(message.split()).rstrip(".").replace(". Did you mean", "; did you mean")
    for said, plainly in PARSERS_WORDS.items():
        line = line.replace(said, plainly)
    line = f"{line[:1].lower()}{line[1:]}"
    return line if line.endswith("?") else f"{line}; `{path} --help` says more."
