"""The entry point: which subcommands there are, and one place where every error becomes a sentence.

Nothing heavy is imported here: each subcommand's module holds its arguments and help, and imports what
it needs when it is called.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from trainmaster import __version__
from trainmaster.cli import compare, new, policies, simulate, trace
from trainmaster.cli.support import errors as complaints
from trainmaster.cli.support.console import examples, help_if_bare
from trainmaster.cli.support.lazy_commands import Commands

NAMES = ("trainmaster", "tm")

app = typer.Typer(
    name="trainmaster",
    cls=Commands,
    help="Run deep-learning training on GPUs under published policies, and simulate what they would do.",
    epilog=examples(
        "trainmaster up",
        "trainmaster run --gpus 2 -- python train.py",
        "trainmaster ps",
        "trainmaster trace generate --jobs 1000 --gpus 64 --out trace.csv",
        "trainmaster simulate trace.csv --cluster 8x8 --policy fifo,tiresias-l",
        "trainmaster policies tiresias-l",
        "trainmaster --install-completion",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"trainmaster {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def overview(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    help_if_bare(context)


STUDIES = "Traces, policies and simulation"

app.command("simulate", epilog=simulate.EPILOG, rich_help_panel=STUDIES)(simulate.simulate)
app.command("compare", epilog=compare.EPILOG, rich_help_panel=STUDIES)(compare.compare)
app.add_typer(trace.app, name="trace", rich_help_panel=STUDIES)
app.command("policies", epilog=policies.EPILOG, rich_help_panel=STUDIES)(policies.policies)
app.add_typer(new.app, name="new", rich_help_panel=STUDIES)


def run() -> None:
    """The console scripts `trainmaster` and `tm`."""
    invoked = Path(sys.argv[0]).name
    sys.exit(main(sys.argv[1:], invoked if invoked in NAMES else NAMES[0]))


def main(arguments: list[str], name: str = NAMES[0]) -> int:
    """Run one command; the answer is its exit code, and no traceback ever reaches the user."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = typer.main.get_command(app).main(arguments, name, standalone_mode=False)
        sys.stdout.flush()
    except (BrokenPipeError, typer.Abort):
        _hush()
        return complaints.FAILED
    except KeyboardInterrupt:
        return complaints.INTERRUPTED
    except Exception as error:
        if complaints.is_debugging():
            raise
        if isinstance(error, OSError):
            _hush()
        sentence, code = complaints.judge(error)
        complaints.say(sentence)
        return code
    return code if isinstance(code, int) else 0


def _hush() -> None:
    """Nobody reads standard output any more: what is still buffered goes nowhere, quietly."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
