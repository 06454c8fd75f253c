"""The entry point: one place where every error becomes a sentence.

Nothing heavy is imported here: `lazy_commands` loads the module of a command when it is called.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer

from trainmaster import __version__
from trainmaster.cli.support import errors
from trainmaster.cli.support.command import CONTEXT, help_if_bare, help_of
from trainmaster.cli.support.console import write
from trainmaster.cli.support.lazy_commands import LazyCommands
from trainmaster.errors import FAILED

NAMES = ("trainmaster", "tm")

app = typer.Typer(
    name="trainmaster", cls=LazyCommands, context_settings=CONTEXT, pretty_exceptions_enable=False
)


def _version(wanted: bool) -> None:
    if wanted:
        write(f"trainmaster {__version__}\n")
        raise typer.Exit


VERSION = typer.Option(
    "--version", callback=_version, is_eager=True, help="Show the version and exit."
)


DEBUG = typer.Option("--debug", help="Show where an error was raised (a traceback).")


def overview(
    context: typer.Context,
    version: Annotated[bool, VERSION] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> None:
    """Run deep-learning training on GPUs under published policies, and simulate what they would do.

    Examples:
        trainmaster up
        trainmaster run --gpus 2 -- python train.py
        trainmaster ps
        trainmaster trace generate --jobs 1000 --gpus 64 --out trace.csv
        trainmaster simulate trace.csv --cluster 8x8 --policy fifo,tiresias-l
        trainmaster policies tiresias-l
        trainmaster --install-completion
    """
    help_if_bare(context)


overview_help: Any = help_of(overview.__doc__)
app.callback(invoke_without_command=True, **overview_help)(overview)


def run() -> None:
    """The console scripts `trainmaster` and `tm`."""
    invoked = Path(sys.argv[0]).name
    sys.exit(main(sys.argv[1:], invoked if invoked in NAMES else NAMES[0]))


def main(arguments: list[str], name: str = NAMES[0]) -> int:
    """Run one command and return its exit code; no traceback ever reaches the user."""
    errors.debug(is_debug_asked(arguments))
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = typer.main.get_command(app).main(arguments, name, standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, typer.Abort):
        _discard_output()
        return FAILED
    except KeyboardInterrupt:
        return errors.INTERRUPTED
    except Exception as error:
        if errors.is_debugging():
            raise
        if isinstance(error, OSError):
            _discard_output()
        sentence, code = errors.sentence_and_code(error)
        errors.print_error(sentence)
        return code
    return code if isinstance(code, int) else 0


def is_debug_asked(arguments: list[str]) -> bool:
    """Whether `--debug` stands before the command; after it, it may be an argument of a program."""
    return "--debug" in takewhile(lambda word: word.startswith("-"), arguments)


def _discard_output() -> None:
    """Discard buffered output: standard output is closed, or cannot be written."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
