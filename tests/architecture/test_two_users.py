"""A mechanism has at least two users: what only one policy uses belongs in that policy's own place.

Read from the syntax tree. A user is a policy (a file or a package under policies/); for placement/ and
estimators/ the simulator, the daemon, profiling and the CLI count too. A module is used directly, or
through other modules of these rooms. An estimator that the daemon uses needs no other user: what it estimates
becomes facts, which every policy sees.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.test_walls import ROOT, import_linter

SHARED = ("mechanisms", "placement", "estimators")
OTHER_USERS = ("sim", "daemon", "profiling", "cli")
"""Rooms that count as one user each, but not of mechanisms."""


def modules(package: Path) -> dict[str, Path]:
    """Every module by its dotted name, `__init__` aside."""
    files = [path for path in package.rglob("*.py") if path.name != "__init__.py"]
    return {".".join(path.relative_to(package).with_suffix("").parts): path for path in files}


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.removeprefix("trainmaster.") for name in found} & set(known)


def user_of(module: str) -> str | None:
    room, *rest = module.split(".")
    if room == "policies" and rest:
        return f"policies.{rest[0]}"
    return room if room in OTHER_USERS else None


def users(package: Path) -> dict[str, set[str]]:
    """The users of every shared module."""
    known = modules(package)
    imports = {name: imported(path, known) for name, path in known.items()}
    found: dict[str, set[str]] = {n: set() for n in known if n.split(".")[0] in SHARED}
    for name in known:
        user = user_of(name)
        if user is None:
            continue
        reached, left = set[str](), [name]
        while left:
            new = (imports[left.pop()] & set(found)) - reached
            reached |= new
            left += new
        for each in reached:
            if user.startswith("policies.") or not each.startswith("mechanisms."):
                found[each].add(user)
    return found


def with_one_user(package: Path) -> dict[str, set[str]]:
    found = {name: by for name, by in users(package).items() if len(by) < 2}
    return {name: by for name, by in found.items() if not is_for_all(name, by)}


def is_for_all(module: str, by: set[str]) -> bool:
    """Whether the daemon makes facts of what it estimates, which every policy sees."""
    return module.startswith("estimators.") and by == {"daemon"}


def test_every_shared_module_has_two_users() -> None:
    assert with_one_user(ROOT / "src/trainmaster") == {}


@pytest.mark.parametrize("room", SHARED)
def test_a_module_with_one_user_is_found_by_name(house: Path, room: str) -> None:
    package = house / "src/trainmaster"
    (package / room / "private.py").write_text('"""What one policy uses."""\n')
    assert with_one_user(package) == {f"{room}.private": set()}
    for name in ("fifo", "srtf"):
        policy = package / "policies" / f"{name}.py"
        policy.write_text(policy.read_text() + f"\nimport trainmaster.{room}.private\n")
        one = {f"{room}.private": {"policies.fifo"}}
        assert with_one_user(package) == (one if name == "fifo" else {})


@pytest.mark.parametrize(("room", "is_enough"), [("estimators", True), ("placement", False)])
def test_what_the_daemon_estimates_is_for_all(house: Path, room: str, is_enough: bool) -> None:
    package = house / "src/trainmaster"
    (package / room / "private.py").write_text('"""What the daemon uses."""\n')
    driver = package / "daemon/driver.py"
    driver.write_text(driver.read_text() + f"\nimport trainmaster.{room}.private\n")
    assert with_one_user(package) == ({} if is_enough else {f"{room}.private": {"daemon"}})


def test_a_package_is_one_user_however_many_of_its_files_ask(house: Path) -> None:
    package = house / "src/trainmaster"
    (package / "mechanisms/private.py").write_text('"""What one policy uses."""\n')
    for name in ("policies/gandiva/policy", "policies/gandiva/migration", "sim/driver"):
        file = package / f"{name}.py"
        file.write_text(file.read_text() + "\nimport trainmaster.mechanisms.private\n")
    assert with_one_user(package) == {"mechanisms.private": {"policies.gandiva"}}


@pytest.mark.parametrize(
    ("path", "other"),
    [("fifo.py", "srtf"), ("gandiva/policy.py", "themis.leases")],
)
def test_a_policy_that_imports_another_is_found(house: Path, path: str, other: str) -> None:
    policy = house / "src/trainmaster/policies" / path
    policy.write_text(policy.read_text() + f"\nimport trainmaster.policies.{other}\n")
    said = import_linter(house)
    assert said.returncode == 1
    assert "A policy is a place: no policy imports another BROKEN" in said.stdout
    assert f"-> trainmaster.policies.{other}" in said.stdout
