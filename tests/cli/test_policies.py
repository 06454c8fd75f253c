"""`policies`, and what the shell offers on Tab."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from trainmaster.catalog import policy_names

Process = Callable[..., CompletedProcess[str]]


def test_every_policy_is_listed_with_its_options(tm) -> None:
    said = tm("policies --json")
    found = {each["name"]: each for each in json.loads(said.out)["policies"]}
    assert tuple(found) == policy_names()
    assert found["srtf"]["needs_oracle"]
    assert not found["las"]["needs_oracle"]
    quantum, *shared = found["las"]["options"]
    assert quantum == {
        "name": "quantum_s",
        "default": 60,
        "allowed": "seconds above 0",
        "help": "seconds between priority updates while jobs wait",
    }
    assert [each["name"] for each in shared] == ["starve_after_s", "min_run_s"]
    assert all(each["summary"] for each in found.values())


def test_the_list_for_people(tm) -> None:
    said = tm("policies")
    assert said.code == 0
    for name in policy_names():
        assert name in said.out
    assert "thresholds_gpu_s" not in said.out
    assert "`trainmaster policies NAME`" in said.out
    assert "oracle" in said.out
    assert tm("policy list").out == said.out
    assert tm("policy show tiresias-l").out == tm("policies tiresias-l").out


def test_one_policy_in_full(tm) -> None:
    said = tm("policies tiresias-l")
    assert "Deviations" in said.out
    assert "--set promote_knob" in said.out
    assert "--set min_run_s" in tm("policies srtf").out


ALLOWED = {
    ("fair", "preemption"): "on|off",
    ("fair", "share_threshold"): "0 to 1",
    ("fair", "half_life_s"): "0 or more",
    ("fair", "queues"): "name:weight,...",
    ("fair", "inner"): "a policy without queues",
    ("fair", "inner_options"): "key=value;...",
    ("philly", "relax_after"): "1 or more",
    ("gittins", "service_samples"): "a file",
    ("big-brain", "concurrency"): "auto|1 to 48",
    ("big-brain", "split"): "on|off",
    ("antman", "classes"): "on|off",
    ("antman", "guaranteed_per_gpu"): "1 to 16",
    ("tiresias-l", "thresholds_gpu_s"): "growing,numbers,...",
}


def test_options_say_what_they_allow(tm) -> None:
    entries = json.loads(tm("policies --json").out)["policies"]
    found = {
        (each["name"], option["name"]): option["allowed"]
        for each in entries
        for option in each["options"]
    }
    assert all(found.values())
    assert {key: found[key] for key in ALLOWED} == ALLOWED
    assert "on|off" in tm("policies fair").out


COMPLETIONS = {
    "a policy": ("simulate t.csv --policy ti", ["tiresias-l", "tiresias-g"]),
    "the next of a list": ("simulate t.csv --policy srtf,s", ["srtf,srsf"]),
    "an option's key": ("simulate t.csv --set quan", ["quantum_s="]),
    "one policy's key": ("simulate t.csv --set las.q", ["las.quantum_s="]),
    "a format": ("simulate t.csv --format al", ["alibaba-2020", "alibaba-2023"]),
    "a world": ("simulate t.csv --perf i", ["ideal"]),
    "a command": ("tra", ["trace"]),
    "a policy to describe": ("policies ya", ["yarn-cs"]),
}


@pytest.mark.parametrize(("typed", "offered"), COMPLETIONS.values(), ids=list(COMPLETIONS))
def test_the_shell_completes(
    tm, monkeypatch: pytest.MonkeyPatch, typed: str, offered: list[str]
) -> None:
    line = f"trainmaster {typed}"
    monkeypatch.setenv("_TRAINMASTER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    assert tm("").out.split() == offered


HELPS = ("", "simulate", "trace", "trace generate", "trace stats", "trace convert", "trace formats",
         "policies", "new", "new policy")  # fmt: skip


@pytest.mark.parametrize("command", HELPS)
def test_every_help_has_examples(tm, command: str) -> None:
    said = tm(f"{command} --help")
    assert said.code == 0
    assert "Examples" in said.out
    assert f"  trainmaster {command}".rstrip() in said.out
    assert not any(noise in said.out for noise in ("<bool>", "<list", "{", "[["))


def test_the_version(tm) -> None:
    assert tm("--version").out == "trainmaster 0.1.0\n"
