"""The site's pages beside those of docs/: a hook of mkdocs, which `make docs` runs.

Pages and source files outside docs/ that a page links to become pages of the site, so that every link works
there as it does on a forge. The API reference is written from the OpenAPI document, the Python reference from
docstrings. What Python-Markdown reads otherwise than GitHub is rewritten.
"""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CHECK = runpy.run_path(str(DOCS / "check.py"))
LINK, FENCED = CHECK["LINK"], CHECK["FENCED"]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages of the repository's root, and where they are on the site."""
SHOWN = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".conf": "ini", "": "make"}
"""Source files that are shown as pages, and in which language; others are copied as they are."""
INTRODUCTION = "Made from docstrings. [The client](../client.md), [the SDK](../sdk.md) by example."
LISTS = {"design/all.md": "Design notes", "measurements/all.md": "Measurements"}
WIDE = {"compare.md"}
"""Pages with a wide table."""
OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:")
LIST_ITEM = re.compile(r"([-*]|\d+\.) ")
TITLE = re.compile(r"^# (.+)$", re.M)

# ------------------------------------------------------------------------------------------- places


def site_place(path: str) -> str:
    """Where a file of the repository is on the site: `src/x.py` is `source/src/x.py.md`."""
    if path.startswith("docs/") and not path.endswith(".py"):
        return path.removeprefix("docs/")
    if path in PAGES:
        return PAGES[path]
    if path == "examples/README.md":
        return path
    if path.endswith(".md"):
        return f"source/{path}"
    if (ROOT / path).is_dir():
        return f"source/{path}/index.md"
    return f"source/{path}.md" if Path(path).suffix in SHOWN else f"source/{path}"


def linked(page: str, text: str) -> Iterator[str]:
    """Files and folders of the repository that a page of it links to."""
    for link in LINK.finditer(_prose(text)):
        target = _target(page, link["target"])
        if target is not None and (ROOT / target[0]).exists():
            yield target[0]


def _prose(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", FENCED.sub("", text))


def _target(page: str, written: str) -> tuple[str, str] | None:
    """What a link of this page names: the file, by its path in the repository, and the anchor."""
    target = written.strip("<>")
    path, _, anchor = target.partition("#")
    if OUTSIDE.match(target) or not path:
        return None
    found = os.path.normpath(os.path.join(os.path.dirname(page), path))
    return found, anchor


def all_linked() -> dict[str, str]:
    """Files outside docs/ that belong to the site, by their paths in the repository, and where they are."""
    found: dict[str, str] = {}
    waiting = [*PAGES, "examples/README.md", *(_path(each) for each in sorted(DOCS.rglob("*.md")))]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        place = site_place(page)
        if not page.startswith("docs/") or place.startswith("source/"):
            found[page] = place
        if page.endswith(".md"):
            for each in linked(page, (ROOT / page).read_text("utf-8")):
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
    return found


def _path(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


# ---------------------------------------------------------------------------------------------- text


def with_site_links(page: str, text: str) -> str:
    """A page of the repository, with its links as they are on the site."""
    here = os.path.dirname(site_place(page))

    def moved(link: re.Match[str]) -> str:
        target = _target(page, link["target"])
        if target is None:
            return link[0]
        place = os.path.relpath(site_place(target[0]), here or ".")
        return link[0].replace(link["target"], place + (f"#{target[1]}" if target[1] else ""))

    return _outside_fences(text, lambda prose: LINK.sub(moved, prose))


def for_python_markdown(text: str) -> str:
    """Lists and tables as Python-Markdown wants them: an empty line before, four spaces for each level."""
    return _outside_fences(text, _lists_and_tables)


def _lists_and_tables(prose: str) -> str:
    lines: list[str] = []
    is_in_list = False
    for line in prose.split("\n"):
        item = LIST_ITEM.match(line)
        if item and lines and lines[-1].strip() and not is_in_list:
            lines.append("")
        nested = re.match(r" {2,3}(?=([-*]|\d+\.) )", line)
        if nested:
            line = f"    {line.lstrip()}"
        if line.startswith("|"):
            line = re.sub(r"`[^`]*`", lambda code: code[0].replace(r"\|", "&#124;"), line)
            line = re.sub(r"`([^`]*&#124;[^`]*)`", r"<code>\1</code>", line)
        is_in_list = bool(item) or (is_in_list and bool(line.strip()))
        lines.append(line)
    return "\n".join(lines)


def _outside_fences(text: str, change: Any) -> str:
    parts, at = [], 0
    for block in FENCED.finditer(text):
        parts += [change(text[at : block.start()]), block[0]]
        at = block.end()
    return "".join([*parts, change(text[at:])])


def slug(heading: str, separator: str) -> str:
    """The name of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


# ------------------------------------------------------------------------------------- written pages


def source_page(path: str) -> str:
    """A source file or a folder as a page."""
    place = ROOT / path
    if place.is_dir():
        lines = [
            f"- `{file.name}`{_summary(file)}"
            for file in sorted(place.iterdir())
            if _is_listed(file)
        ]
        return f"# {path}\n\n" + "\n".join(lines) + "\n"
    fence = "`" * 6
    return f"# {path}\n\n{fence}{SHOWN[place.suffix]}\n{place.read_text('utf-8')}\n{fence}\n"


def _is_listed(file: Path) -> bool:
    return not file.name.startswith(("_", ".")) or file.name == "__init__.py"


def _summary(file: Path) -> str:
    if file.suffix != ".py":
        return ""
    said = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return f": {said.splitlines()[0]}" if said else ""


def list_page(place: str, title: str) -> str:
    """All pages of a folder, by their titles."""
    lines = [f"# {title}", ""]
    for page in sorted((DOCS / place).parent.glob("*.md")):
        found = TITLE.search(page.read_text("utf-8"))
        lines.append(f"- [{found[1] if found else page.stem}]({page.name})")
    return "\n".join(lines) + "\n"


def pages_without_a_place(menu: str) -> list[str]:
    """Pages of docs/ that the menu does not name, so that a new one can be found at once."""
    return [page.name for page in sorted(DOCS.glob("*.md")) if f" {page.name}\n" not in menu]


def openapi() -> dict[str, Any]:
    """The document that a manager serves; it depends on the routes alone."""
    from trainmaster.api.app import create_app
    from trainmaster.config.limits import Limits

    app = create_app(MagicMock(limits=Limits(), folder=Path()))
    found: dict[str, Any] = app.openapi()
    return found


def http_page(document: Mapping[str, Any]) -> str:
    """Every route: what it does, its parameters, what is sent and answered; then every type."""
    lines = [
        "# API, every route",
        "",
        f"Written from the OpenAPI document of version {document['info']['version']}"
        " ([openapi.json](openapi.json)), which a manager serves at `/api/v1/openapi.json`."
        " [The HTTP API](../api.md) explains it.",
    ]
    for tag in document.get("tags", ()):
        lines += ["", f"## {tag['name']}", "", tag.get("description", "")]
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation.get("tags", ()):
                    lines += _operation(method, path, operation)
    lines += ["", "## Types"]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += _type(name, schema)
    return "\n".join(lines) + "\n"


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> list[str]:
    lines = ["", f"### {method.upper()} {path}", "", f"**{operation.get('summary', '')}.**"]
    if operation.get("description"):
        lines += ["", operation["description"]]
    parameters = operation.get("parameters", ())
    if parameters:
        lines += ["", "| Parameter | In | Type | |", "|---|---|---|---|"]
    for each in parameters:
        said = _cell(each.get("description") or each.get("schema", {}).get("description", ""))
        lines.append(
            f"| `{each['name']}` | {each['in']} | {_kind(each.get('schema', {}))} | {said} |"
        )
    sent = [
        _kind(each.get("schema", {}))
        for each in operation.get("requestBody", {}).get("content", {}).values()
    ]
    if sent:
        lines += ["", f"Body: {' or '.join(dict.fromkeys(sent))}."]
    answered = []
    for status, answer in operation["responses"].items():
        kinds = [_kind(each.get("schema", {})) for each in answer.get("content", {}).values()]
        if status.startswith("2"):
            answered.append(f"{status}: {' or '.join(dict.fromkeys(kinds)) or 'nothing'}")
    errors = [status for status in operation["responses"] if not status.startswith("2")]
    lines += [
        "",
        f"Answer {'; '.join(answered)}." + (f" Errors: {', '.join(errors)}." if errors else ""),
    ]
    return lines


def _type(name: str, schema: Mapping[str, Any]) -> list[str]:
    lines = ["", f"### {name}"]
    if schema.get("description"):
        lines += ["", _prose_of(schema["description"])]
    fields = schema.get("properties", {})
    if fields:
        lines += ["", "| Field | Type | |", "|---|---|---|"]
    for field, each in fields.items():
        lines.append(f"| `{field}` | {_kind(each)} | {_cell(each.get('description', ''))} |")
    if not fields and schema.get("enum"):
        lines += ["", ", ".join(f"`{each}`" for each in schema["enum"])]
    return lines


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{slug(name, '-')})"
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(map(_kind, schema[choice])))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if schema.get("enum"):
        return " or ".join(f"`{each}`" for each in schema["enum"])
    return str(schema.get("type", "anything"))


def _cell(text: str) -> str:
    return _prose_of(text).replace("|", "&#124;")


def _prose_of(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;").replace("[", "&#91;")


def python_page() -> str:
    """What programs import: the client, simulations, and the SDK."""
    import trainmaster

    lines = [
        "# Python",
        "",
        INTRODUCTION,
    ]
    for name in trainmaster.__all__:
        lines += ["", f"::: {trainmaster.MODULES[name]}.{name}"]
    lines += ["", "::: trainmaster_sdk"]
    for name in ("torch", "lightning", "huggingface", "accelerate", "deepspeed"):
        lines += ["", f"::: trainmaster_sdk.{name}"]
    return "\n".join(lines) + "\n"


# --------------------------------------------------------------------------------------------- mkdocs

_texts: dict[str, str] = {}
"""Pages that are not files of docs/: their paths in the repository, by their place on the site."""


def on_config(config: Any) -> Any:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    config.nav[-1]["Reference"] += pages_without_a_place((ROOT / "mkdocs.yml").read_text("utf-8"))
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    def add(place: str, content: str | bytes) -> None:
        files.append(File.generated(config, place, content=content))

    for path, place in all_linked().items():
        if not place.endswith(".md"):
            add(place, (ROOT / path).read_bytes())
        elif path.endswith(".md"):
            _texts[place] = path
            add(place, (ROOT / path).read_text("utf-8"))
        else:
            add(place, source_page(path))
    for place, title in LISTS.items():
        add(place, list_page(place, title))
    document = openapi()
    add("reference/openapi.json", json.dumps(document, indent=1))
    add("reference/http.md", http_page(document))
    add("reference/python.md", python_page())
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    place = page.file.src_uri
    if place in WIDE:
        page.meta["hide"] = ["navigation", "toc"]
    path = _texts.get(place) or (f"docs/{place}" if (DOCS / place).exists() else None)
    if path is None:
        return markdown
    return for_python_markdown(with_site_links(path, markdown))
