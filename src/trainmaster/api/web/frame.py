"""What is around every page: where else to go, search, who looks, light and dark, what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from nicegui import ui

from trainmaster.api.web.api_client import Refused
from trainmaster.api.web.viewer import Viewer

PLACES = (
    ("Overview", "/", "o"),
    ("Jobs", "/jobs", "j"),
    ("Submit", "/submit", "s"),
    ("Nodes", "/nodes", "n"),
    ("Queues", "/queues", "q"),
    ("Usage", "/usage", "u"),
    ("What-if", "/whatif", "w"),
    ("Policy lab", "/lab", "l"),
)
KEYS = (
    *((f"g {key}", name) for name, _, key in PLACES),
    ("/", "Search for a job"),
    ("?", "These keys"),
)
THEMES = (("auto", "As the system is"), ("light", "Light"), ("dark", "Dark"))
TROUBLE_S = 15.0
"""How often it is looked at whether the manager is in trouble."""
SCRIPT = Path(__file__).with_suffix(".js").read_text()
STYLE = """
html { background: light-dark(#fff, #121212) }
#popup { display: none }
#away { position: sticky; top: 0; z-index: 1; background: #e69f00; color: #000; padding: .4rem 1rem }
dialog.keys { margin: auto; border: 1px solid #8888; border-radius: 8px; padding: 1rem 1.5rem }
dialog.keys::backdrop { background: #0008 }
dialog.keys kbd { border: 1px solid #8888; border-radius: 4px; padding: 0 .4rem }
.skip { position: absolute; left: -99rem }
.skip:focus { left: .5rem; top: .5rem; z-index: 9999; background: #fff; color: #000; padding: .5rem }
"""


@contextmanager
def frame(viewer: Viewer, title: str) -> Iterator[None]:
    """The content of a page goes inside."""
    ui.page_title(f"{title} · Trainmaster")
    ui.colors(primary="#0072b2")
    ui.add_head_html(f"<style>{STYLE}</style><script>{SCRIPT}</script>")
    ui.context.client.content.classes("p-0 gap-0")
    ui.html('<a class="skip" href="#content">To the content</a>', sanitize=False)
    with ui.left_drawer(value=False).props("behavior=mobile overlay width=240") as drawer:
        for name, path, _ in PLACES:
            ui.link(name, path).classes("py-2 text-base no-underline text-inherit w-full")
        _search()
    with ui.header().classes("items-center px-4 py-1 gap-4 flex-nowrap"):
        ui.button(icon="menu", on_click=drawer.toggle).props(
            'flat dense color=white aria-label="Menu"'
        ).classes("lg:hidden")
        ui.link("Trainmaster", "/").classes("text-lg font-bold text-white no-underline")
        with ui.element("nav").classes("flex gap-4 max-lg:hidden").props('aria-label="Pages"'):
            for name, path, _ in PLACES:
                is_here = name == title
                ui.link(name, path).classes(
                    "text-white whitespace-nowrap no-underline"
                    + (" font-bold border-b-2" if is_here else "")
                ).props('aria-current="page"' if is_here else "")
        ui.space()
        with ui.row().classes("max-lg:hidden"):
            _search(is_dark=True)
        _account(viewer)
    _keys()
    ui.element("div").props("id=away hidden role=status aria-live=polite").classes("w-full")
    _trouble(viewer)
    with ui.column().classes("w-full px-4 py-3 gap-4").props("id=content tabindex=-1"):
        yield


def _search(*, is_dark: bool = False) -> None:
    """By a job's id, or by a part of its name."""
    field = ui.input(placeholder="Search jobs").props(
        'dense outlined clearable input-class=search aria-label="Search jobs by name or id"'
        + (" dark standout" if is_dark else "")
    )

    def find() -> None:
        wanted = str(field.value or "").strip()
        if wanted:
            ui.navigate.to(found_at(wanted))

    field.on("keydown.enter", find)


def found_at(wanted: str) -> str:
    """The page of the job with this id, else the list of those whose name has this in it."""
    if wanted.isascii() and wanted.replace("_", "", 1).isdecimal():
        return f"/jobs/{wanted}"
    return f"/jobs?text={quote(wanted, safe='')}"


def _account(viewer: Viewer) -> None:
    who = f"{viewer.user} ({viewer.role})"
    if viewer.policy:
        ui.label(f"Policy {viewer.policy}").classes("text-sm whitespace-nowrap max-xl:hidden")
    ui.label(who).classes("text-sm whitespace-nowrap max-md:hidden")
    with (
        ui.button(icon="account_circle").props('flat dense color=white aria-label="Account"'),
        ui.menu(),
        ui.column().classes("p-4 gap-2"),
    ):
        ui.label(who).classes("font-bold")
        if viewer.role == "viewer":
            ui.label("A viewer changes nothing.").classes("text-sm")
        if viewer.policy:
            ui.label(f"Policy in force: {viewer.policy}").classes("text-sm")
        with ui.row().classes("gap-1").props('role=group aria-label="Colours"'):
            for name, says in THEMES:
                _does(says, f"trainmaster.setTheme('{name}')")
        with ui.row().classes("gap-1"):
            _does("Keys", "trainmaster.showKeys()")
            _does("Log out", "trainmaster.logOut()")


def _does(says: str, script: str) -> None:
    """A button that the browser acts on by itself."""
    ui.button(says).props("flat dense no-caps").on("click", js_handler=f"() => {script}")


def _keys() -> None:
    with ui.element("dialog").classes("keys"):
        ui.label("Keys").classes("text-lg font-bold")
        with ui.grid(columns="auto 1fr").classes("gap-x-6 gap-y-1 py-2"):
            for keys, says in KEYS:
                with ui.row().classes("gap-1"):
                    for key in keys.split():
                        with ui.element("kbd"):
                            ui.label(key)
                ui.label(says)
        _does("Close", "document.querySelector('dialog.keys').close()")


def _trouble(viewer: Viewer) -> None:
    """A line while the manager cannot change anything."""
    line = ui.label(viewer.trouble.said).classes("w-full px-4 py-2 bg-red-700 text-white")
    line.set_visibility(bool(viewer.trouble.said))

    async def look() -> None:
        try:
            said = await viewer.trouble.look(viewer.api)
        except Refused as refusal:
            said = str(refusal)
        line.set_text(said)
        line.set_visibility(bool(said))

    ui.timer(TROUBLE_S, look, immediate=False)
