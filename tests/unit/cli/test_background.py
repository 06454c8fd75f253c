"""The manager in the background has the options that `up -d` was called with."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from trainmaster.cli.support.background import arguments_of

app = typer.Typer()


@app.command()
def start(
    context: typer.Context,
    serves_all: Annotated[bool | None, typer.Option("--system/--no-system")] = None,
    force: Annotated[bool, typer.Option("--force")] = False,
    port: Annotated[int, typer.Option("--port")] = 8470,
    limits: Annotated[list[str] | None, typer.Option("--limit")] = None,
) -> None:
    typer.echo(" ".join(arguments_of(context)))


@pytest.mark.parametrize(
    "words",
    ["", "--system", "--no-system", "--force --port 0", "--limit a=1 --limit b=2"],
)
def test_options_are_passed_on_as_they_were_given(words: str) -> None:
    assert CliRunner().invoke(app, words.split()).output.strip() == words
