"""From a campaign to the report's files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainmaster.evaluation.report.comparisons import comparisons
from trainmaster.evaluation.report.csvs import scores_csv
from trainmaster.evaluation.report.document import article
from trainmaster.evaluation.report.document_model import Figure
from trainmaster.evaluation.report.html import MARK, html, standalone
from trainmaster.evaluation.report.markdown import FIGURES, markdown
from trainmaster.evaluation.report.series_style import cast_of
from trainmaster.evaluation.score import Campaign
from trainmaster.report.atomic_write import Document, publish

PAGE = "index.html"


def write_report(campaign: Campaign, directory: Path) -> Path:
    """Write page, Markdown, figures and scores into a directory; the page's path comes back.

    The same campaign gives the same bytes. An earlier report there is replaced. All or nothing: when
    the directory cannot be written, ReportError says what to do, and nothing is left behind.
    """
    made = list(documents(campaign))
    publish(made, directory)
    _remove_stale(directory / FIGURES, {directory / each.name for each in made})
    return directory / PAGE


def _remove_stale(folder: Path, written: set[Path]) -> None:
    """Figures of an earlier report that this one does not have; files of others stay."""
    for path in sorted(folder.glob("*.svg")):
        if path not in written and MARK in path.read_text(encoding="utf-8", errors="replace"):
            path.unlink()


def documents(campaign: Campaign) -> Iterator[Document]:
    """Every file of the report, the page last."""
    found = comparisons(campaign)
    cast = cast_of(found)
    written = article(campaign, found, cast)
    yield _text("scores.csv", scores_csv(campaign))
    for block in written.blocks:
        if isinstance(block, Figure):
            yield _text(f"{FIGURES}/{block.slug}.svg", standalone(block, cast.size))
    yield _text("README.md", markdown(written))
    yield _text(PAGE, html(written, cast.size))


def _text(name: str, content: str) -> Document:
    return Document(name, content.encode("utf-8", errors="backslashreplace"))
