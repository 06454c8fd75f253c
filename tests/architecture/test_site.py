"""The documentation site: links and lists as its pages have them, and what a built page may load."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = runpy.run_path(str(ROOT / "docs/site_pages.py"))
CHECK = SITE["CHECK"]


@pytest.mark.parametrize(
    ("page", "link", "on_the_site"),
    [
        ("README.md", "[x](docs/cli.md#ps)", "[x](cli.md#ps)"),
        ("README.md", "[x](CONTRIBUTING.md)", "[x](contributing.md)"),
        ("docs/cli.md", "[x](job-file.md)", "[x](job-file.md)"),
        ("docs/policies/las.md", "[x](../gpus.md#a)", "[x](../gpus.md#a)"),
        ("docs/policies/las.md", "[x](../../README.md)", "[x](../index.md)"),
        (
            "docs/policies/las.md",
            "[x](../../src/trainmaster/policies/las.py)",
            "[x](../source/src/trainmaster/policies/las.py.md)",
        ),
        (
            "docs/gpus.md",
            "[x](../src/trainmaster/policies)",
            "[x](source/src/trainmaster/policies/index.md)",
        ),
        (
            "docs/gpus.md",
            "[x](../benchmarks/results/gpu/first_look.json)",
            "[x](source/benchmarks/results/gpu/first_look.json)",
        ),
        ("docs/gpus.md", "[x](https://example.org/a.md)", "[x](https://example.org/a.md)"),
        ("docs/gpus.md", "[x](#below)", "[x](#below)"),
        ("docs/gpus.md", "```\n[x](../README.md)\n```\n", "```\n[x](../README.md)\n```\n"),
    ],
)
def test_links_lead_to_the_page_on_the_site(page: str, link: str, on_the_site: str) -> None:
    assert SITE["with_site_links"](page, link) == on_the_site


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("text\n- a\n- b", "text\n\n- a\n- b"),
        ("- a\n  on\n- b", "- a\n  on\n- b"),
        ("1. a\n   - b", "1. a\n    - b"),
        ("| `a\\|b` |", "| <code>a&#124;b</code> |"),
        ("```\ntext\n- a\n```\n", "```\ntext\n- a\n```\n"),
    ],
)
def test_lists_and_tables_are_written_as_python_markdown_reads_them(here: str, there: str) -> None:
    assert SITE["for_python_markdown"](here) == there


def test_headings_have_the_same_names_as_on_a_forge() -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = CHECK["FENCED"].sub("", page.read_text("utf-8"))
        plain = [
            re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", each) for each in CHECK["HEADING"].findall(text)
        ]
        names = {SITE["slug"](each, "-") for each in plain}
        assert names <= CHECK["anchors"](text)


def test_a_page_that_the_menu_does_not_name_is_added_to_it() -> None:
    assert SITE["pages_without_a_place"]("  - x: cli.md\n")[:2] == ["api.md", "architecture.md"]
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    named = set(re.findall(r" ([\w/-]+\.md)\n", menu)) - set(SITE["LISTS"])
    written = {"index.md", "contributing.md", "changelog.md", "examples/README.md"}
    lost = {name for name in named - written if not (ROOT / "docs" / name).exists()}
    assert lost == {"reference/http.md", "reference/python.md"}


def test_the_reference_has_every_route() -> None:
    document = SITE["openapi"]()
    page = SITE["http_page"](document)
    routes = [
        f"### {method.upper()} {path}\n"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if operation.get("tags")
    ]
    assert len(routes) > 40
    assert [route for route in routes if route not in page] == []


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.html", '<a href="https://example.org">x</a>', ""),
        ("a.html", '<script src="assets/a.js"></script>', ""),
        (
            "a.html",
            '<script src="https://example.org/a.js"></script>',
            "loads https://example.org/a.js",
        ),
        ("a.html", "<link rel=stylesheet href=//example.org/a.css>", "loads //example.org/a.css"),
        (
            "a.css",
            "@font-face{src:url(https://example.org/f.woff)}",
            "loads https://example.org/f.woff",
        ),
        ("a.svg", 'url("https://example.org/f.woff2")', "loads https://example.org/f.woff2"),
        ("a.html", '<pre class="mermaid">', "loads a library for diagrams"),
    ],
)
def test_a_page_that_loads_from_elsewhere_is_found(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    (tmp_path / name).write_text(text)
    said = subprocess.run(
        [sys.executable, ROOT / "docs/check.py", "--site", tmp_path], text=True, capture_output=True
    )
    assert said.returncode == (1 if complaint else 0)
    assert complaint in said.stderr


def test_our_pictures_load_nothing() -> None:
    assert list(CHECK["foreign_loads"](ROOT / "docs")) == []
