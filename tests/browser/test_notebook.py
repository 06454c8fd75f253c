"""The client's notebook, in a kernel, with a live manager.

It is here because a kernel takes some seconds to start; no browser is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.live.daemons import LiveDaemon

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def test_the_notebook_runs_and_shows_what_it_says(
    manager: LiveDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_DATA", str(manager.folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [_text(cell) for cell in notebook.cells if cell.cell_type == "code"]
    assert shown[0].startswith("<Client of http")
    assert shown[1] == "0.3"
    assert shown[2].startswith("training with lr 0.1\n<Job 1 train: succeeded")
    assert shown[3].split() == [
        *("lr", "depth", "state", "result"),
        *("0", "0.1", "1", "succeeded", "0.1"),
        *("1", "0.1", "2", "succeeded", "0.2"),
        *("2", "0.2", "1", "succeeded", "0.2"),
        *("3", "0.2", "2", "succeeded", "0.4"),
    ]
    assert shown[4] == "raised here: it diverged"
    assert shown[5].split()[-3:] == ["srtf", "14400.0", "32400.0"]


def _text(cell: Any) -> str:
    """What a cell shows, as text."""
    pieces = [each.text if "text" in each else each.data["text/plain"] for each in cell.outputs]
    return "".join(pieces).strip()
