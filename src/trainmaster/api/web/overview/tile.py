"""A number with its name, as a link to what it counts."""

from __future__ import annotations

from nicegui import ui

LONG = 11
"""Signs of a value beyond which it is written smaller."""
STYLE = """
.tm-tile { border: 1px solid rgba(128, 128, 128, .28); border-radius: 6px; padding: 6px 12px; flex: 1 1 128px;
  color: inherit; text-decoration: none; min-width: 0; }
.tm-tile:hover, .tm-tile:focus-visible { border-color: var(--q-primary); }
.tm-tile .tm-value { font-size: 22px; line-height: 1.25; font-weight: 600; white-space: nowrap; }
.tm-tile .tm-value.tm-long { font-size: 16px; line-height: 27px; }
.tm-tile .tm-tile-name, .tm-tile .tm-more { font-size: 12px; opacity: .72; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; }
.tm-tile .tm-more { min-height: 18px; }
"""


class Tile:
    def __init__(self, name: str, href: str, key: str) -> None:
        ui.add_css(STYLE)
        self._link = ui.link(target=href).classes("tm-tile").mark(key)
        self._link.props["data-tile"] = key
        with self._link:
            ui.label(name).classes("tm-tile-name")
            self._value = ui.label("–").classes("tm-value")
            self._more = ui.label().classes("tm-more")

    def show(self, value: str, more: str = "", href: str | None = None) -> None:
        self._value.set_text(value)
        if len(value) > LONG:
            self._value.classes("tm-long")
        else:
            self._value.classes(remove="tm-long")
        self._more.set_text(more)
        self._more.props["title"] = more
        if href is not None:
            self._link.props["href"] = href
