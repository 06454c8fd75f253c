"""Write the skeleton of a new policy, or a dashboard for Grafana.

Examples:
    trainmaster new policy my-policy
    trainmaster new dashboard > trainmaster.json
"""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Annotated

from trainmaster.catalog import policy_names
from trainmaster.cli.support.command import command, group, help_if_bare
from trainmaster.cli.support.console import write, write_json
from trainmaster.cli.support.files import check_writable, write_text
from trainmaster.cli.support.options import argument, option
from trainmaster.errors import BadInput, Failed

app = group(help_if_bare, __doc__)
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
CATALOG_LINE = re.compile(
    r"^POLICIES: Mapping\[str, str\] = \{\n(?:    .*\n)*?(?=\}$)", re.MULTILINE
)
TEMPLATES = Path(__file__).with_name("templates")
POLICY, TEST, PAGE = "policy.py.txt", "test.py.txt", "page.md.txt"
IN_TREE = "Write into the trainmaster checkout around this folder, with docs page and catalog line."


@dataclass(frozen=True, slots=True)
class Names:
    """A policy's name in its three spellings."""

    policy: str

    @property
    def module(self) -> str:
        return self.policy.replace("-", "_")

    @property
    def cls(self) -> str:
        return "".join(part.capitalize() for part in self.policy.split("-"))

    @property
    def title(self) -> str:
        return self.policy.replace("-", " ").capitalize()


@command(app)
def policy(
    name: Annotated[str, argument("NAME", "Lower case, with hyphens: my-policy.")],
    folder: Annotated[Path, option("--dir DIR", "Folder to write into.")] = Path(),
    in_tree: Annotated[bool, option("--in-tree", IN_TREE)] = False,
) -> None:
    """Write a policy in one file, with a test that passes.

    Examples:
        trainmaster new policy my-policy
        trainmaster new policy my-policy --dir experiments
        trainmaster new policy my-policy --in-tree
    """
    names = _checked(name)
    if in_tree:
        _write_into_checkout(names)
    else:
        _write_into(folder, names)


@command(app)
def dashboard() -> None:
    """Write a Grafana dashboard for the manager's metrics to standard output.

    In Grafana: Dashboards, New, Import; it asks which Prometheus to use. docs/api.md says how Prometheus
    reads the metrics.

    Examples:
        trainmaster new dashboard > trainmaster.json
    """
    from trainmaster.report.grafana import dashboard

    write_json(dashboard())


def _checked(name: str) -> Names:
    if not NAME.fullmatch(name):
        raise BadInput(
            f"{name!r} cannot be the name of a policy: use lower case and hyphens, as my-policy."
        )
    names = Names(name)
    if keyword.iskeyword(names.module) or names.module in sys.stdlib_module_names:
        raise BadInput(f"{name!r} is a module of Python itself; choose another name.")
    if name in policy_names():
        raise BadInput(f"there is a policy {name!r} already; choose another name.")
    return names


def _checkout() -> Path:
    """The trainmaster checkout around the current folder."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        is_ours = (folder / "src/trainmaster/catalog.py").is_file()
        if is_ours and (folder / "pyproject.toml").is_file():
            return folder
    raise BadInput("--in-tree needs a trainmaster checkout around the current folder.")


def _write_into(folder: Path, names: Names) -> None:
    if not folder.is_dir():
        raise BadInput(f"--dir {folder} is not a directory.")
    file, test = folder / f"{names.module}.py", folder / f"test_{names.module}.py"
    _write_all(names, names.module, {file: POLICY, test: TEST})
    shown = file if file.is_absolute() else f"./{file}"
    _show_next(
        f"python -m pytest {test}     (pip install pytest, or make setup in a checkout)",
        f"trainmaster simulate TRACE --cluster 8x8 --policy fifo,{shown}",
        "to use it by its name, add to the pyproject.toml of your package:",
        '  [project.entry-points."trainmaster.policies"]',
        f'  {names.policy} = "{names.module}:{names.cls}"',
    )


def _write_into_checkout(names: Names) -> None:
    root = _checkout()
    module = f"trainmaster.policies.{names.module}"
    catalog = root / "src/trainmaster/catalog.py"
    listed = _with_line(catalog, f'    "{names.policy}": "{module}:{names.cls}",\n')
    file = root / f"src/trainmaster/policies/{names.module}.py"
    page = root / f"docs/policies/{names.policy}.md"
    test = root / f"tests/policies/test_{names.module}.py"
    _write_all(names, module, {file: POLICY, test: TEST, page: PAGE})
    write_text(catalog, lambda out: out.write(listed))
    write(f"changed {catalog}: {names.policy} is in the catalog\n")
    _show_next(
        f"make unit TESTS={test.relative_to(root)}",
        f"trainmaster simulate TRACE --cluster 8x8 --policy fifo,{names.policy}",
        f"fill in {page.relative_to(root)} and a line of CHANGELOG.md",
        "python docs/policy_table.py     (writes its row in the table of policies)",
    )


def _with_line(catalog: Path, line: str) -> str:
    """The catalog with one more policy."""
    text = catalog.read_text(encoding="utf-8")
    found = CATALOG_LINE.search(text)
    if found is None:
        raise Failed(f"{catalog} has no table POLICIES that a line could be added to.")
    return text[: found.end()] + line + text[found.end() :]


def _write_all(names: Names, module: str, files: dict[Path, str]) -> None:
    """Write all files, or none if one exists already or cannot be written."""
    for path in files:
        if path.exists():
            raise BadInput(f"{path} is there already; nothing was written.")
    for path in files:
        if path.parent.parent.is_dir():
            path.parent.mkdir(exist_ok=True)
        check_writable(path, "the new file")
    written: list[Path] = []
    try:
        for path, template in files.items():
            text = Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(
                name=names.policy, cls=names.cls, title=names.title, module=module
            )
            write_text(path, lambda out, text=text: out.write(text))  # type: ignore[misc]
            written.append(path)
    except Failed:
        for path in written:
            path.unlink()
        raise
    for path in written:
        write(f"wrote {path}\n")


def _show_next(*steps: str) -> None:
    write("next:\n" + "".join(f"  {step}\n" for step in steps))
