"""Pages of Markdown that benchmarks write, by a template beside them."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)


def page(template: str, **figures: object) -> str:
    return TEMPLATES.get_template(template).render(figures)
