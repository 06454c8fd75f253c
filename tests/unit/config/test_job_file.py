"""The job file: what may be written, and one sentence for what may not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.api import schema
from trainmaster.api.containers import prefix_of
from trainmaster.api.request_body import read_json
from trainmaster.api.submission import Defaults, submission_of
from trainmaster.config.command_line import launcher_of, program_of
from trainmaster.config.job_file import jobs_in_json, jobs_in_yaml
from trainmaster.config.units import Gpus, array_of, duration_ms, gpus_of, size_bytes
from trainmaster.config.validation import ConfigError
from trainmaster.daemon.service_api import Submission
from trainmaster.model.launch_spec import Ranks
from trainmaster.model.placement import Role, Sharing
from trainmaster.model.submission import Array, Dependency, When
from trainmaster.model.units import DAY, GIB, HOUR, MIB, MINUTE, SECOND


def submitted(text: str, base: Path) -> Submission:
    [(model, raw)] = jobs_in_yaml(text)
    return submission_of(model, Defaults("ada", base), raw)


def complaint(kind: type[Exception], read: Callable[..., object], value: object) -> str:
    """What it says against this value; nothing where it takes it."""
    try:
        read(value)
    except kind as error:
        return str(error)
    return ""


def test_a_command_is_enough(tmp_path: Path) -> None:
    asked = submitted("command: python train.py --lr 3\n", tmp_path)
    assert asked.recipe.command == ("/bin/sh", "-c", "python train.py --lr 3")
    assert (asked.recipe.name, asked.job.app, asked.job.user, asked.job.queue) == (
        "train.py",
        "train.py",
        "ada",
        "default",
    )
    assert asked.job.demand.nominal.count == 1
    assert asked.recipe.workdir == str(tmp_path)
    assert (asked.job.retries, asked.job.grace_ms, asked.keeps_code) == (2, 30 * SECOND, False)
    assert asked.recipe.ranks is Ranks.PER_NODE
    assert (asked.recipe.umask, asked.recipe.launcher) == (0o022, "")
    assert asked.spec == {"command": "python train.py --lr 3"}


def test_everything_that_can_be_said_arrives(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    asked = submitted(
        f"""
name: resnet
command: [python, train.py]
gpus: H100:2-8
gpu_memory: 10GiB
memory: 64G
cpus: 4.5
queue: vision
user: grace
priority: 7
class: opportunistic
sharing: time
model: resnet50
env: {{EPOCHS: 10, LR: 0.1, NAME: no}}
workdir: {tmp_path}
snapshot: false
retries: 0
grace_period: 2m
checkpoint_dir: saved
data: set
max_runtime: 4h
deadline: 2d
iterations: 9000
array: 0-9%3
depends_on: [12, "13:any", 14_2]
ranks: node
stays_in_memory: false
held: true
""",
        Path("/"),
    )
    demand, recipe = asked.job.demand, asked.recipe
    assert (demand.min_count, demand.max_count, demand.gpu_type) == (2, 8, "H100")
    assert (demand.nominal.memory, demand.host_memory, demand.cpus) == (10 * GIB, 64 * GIB, 4500)
    assert demand.sharing is Sharing.TIME
    assert asked.job.role is Role.OPPORTUNISTIC
    assert recipe.env == (("EPOCHS", "10"), ("LR", "0.1"), ("NAME", "no"))
    assert recipe.checkpoint_dir == str(tmp_path / "saved")
    assert recipe.max_runtime_ms == 4 * HOUR
    assert recipe.memory == 8 * 64 * GIB, "one process for each node may hold all of its GPUs"
    assert not recipe.may_stay_in_memory
    assert asked.array == Array(tuple(range(10)), 3)
    assert asked.depends_on == (Dependency("12"), Dependency("13", When.ANY), Dependency("14_2"))
    assert (asked.job.deadline_ms, asked.job.iterations, asked.job.priority) == (2 * DAY, 9000, 7)
    assert (asked.job.user, asked.keeps_code, asked.is_held) == ("grace", False, True)


MISTAKES = {
    "command: x\ngpu_count: 3": "line 2: unknown key 'gpu_count'; did you mean gpus?",
    "command: x\nretrys: 3": "line 2: unknown key 'retrys'; did you mean retries?",
    "command: x\ncontainer:\n  dokcer: a": "line 3: unknown key 'container.dokcer'; did you mean docker?",
    "name: x": "line 1: command is missing.",
    "command: x\ngpus: 0": "line 2: gpus cannot be 0: a job needs a device",
    "command: x\ngpus: 1.5": "line 2: gpus must be whole GPUs or a part of one, not 1.5: ask for 2.",
    "command: x\ngpus: 8-2": "line 2: gpus must go from a smaller number",
    "command: x\ngpus: [1]": "line 2: gpus must be a number (8), a range",
    "command: x\nmemory: 3 bananas": "line 2: memory must be a size such as 16GiB, 16G or 512M",
    "command: x\nmax_runtime: soon": "line 2: max_runtime must be a length of time such as 90s",
    "command: x\nclass: best": "line 2: class must be guaranteed or opportunistic, not 'best'.",
    "command: x\nretries: many": "line 2: retries must be a whole number, not 'many'.",
    "command: x\nsnapshot: off": "line 2: snapshot must be true or false, not 'off'.",
    "command: x\nname:": "line 2: name is empty: give it a value, or leave it out.",
    "command: x\nname: 12": "line 2: name must not look like a job's id",
    "command: x\nname: a/b": "line 2: name must be 1 to 100 characters without a slash",
    'command: x\nname: "a\\e[31mred"': "or a sign that is not printable (a line break",
    'command: x\nname: "\\x9b31mC1\\x9d0;PWNED\\x9c"': "a sign that is not printable",
    'command: x\nuser: "ada\\u202egpj"': "line 2: user must be 1 to 100 characters",
    'command: x\nqueue: "vis\\u200bion"': "line 2: queue must be 1 to 100 characters",
    'command: x\nmodel: "res\\u2066net"': "line 2: model must be 1 to 100 characters",
    "command: x\nenv: {A: true}": "line 2: env has A = true: a value is a text or a number; quote it.",
    "command: x\nenv: {1A: b}": "line 2: env has the name '1A'",
    "command: x\nsecrets: [TOKEN]": "line 2: secrets must be a mapping of names to values",
    "command: x\nsecrets: {TOKEN: hf_abc}": "name a file such as ~/.secrets/wandb, never the value itself",
    "command: x\nnotify: me": "line 2: notify must be a mail address, https://",
    "command: x\nnotify: {to: a@b.org, on: [born]}": "notify.on",
    "command: x\ndepends_on: last/job": "line 2: depends_on must name jobs by id or name",
    "command: x\narray: 0-9,3": "line 2: array names an index twice",
    "command: x\ngpus: 0.5\nsharing: exclusive": "sharing: exclusive gives whole GPUs only",
    "command: x\ngpus: 1-2\nsharing: mps": "sharing: mps is for jobs on one GPU",
    "command: x\non_hang: restart\nretries: 0": "on_hang restart is a retry, and retries 0 allows none",
    "command: x\ncontainer: {}": "line 2: container must name one of apptainer, enroot, docker, podman",
    "command: [alpine, sh]\ncontainer: {docker: --volume=/:/host}": "options go into `options`",
    "command: x\ncommand: y": "line 2: command is given twice.",
    "command: x\n\tname: y": "line 2: this is not YAML",
    "command: a: b": "quote a text that has a colon in it.",
    "- x": "A job must be a mapping of keys such as command, not ['x'].",
    "": "The file has no job in it",
    "a: &a [*a]": "nested too deeply",
    'command: "a\\0b"': "cannot be stored",
    "command: x\numask: 22": "line 2: umask must be octal digits in quotes",
    "command: x\nranks: core": "line 2: ranks must be node or gpu, not 'core'.",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_sentence(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        submitted(text, tmp_path)
    said = str(caught.value)
    assert MISTAKES[text] in said
    assert "\n" not in said
    assert said.endswith((".", "?"))


def test_several_documents_are_several_jobs() -> None:
    found = jobs_in_yaml("command: a\n---\ncommand: b\n---\n")
    assert [model.command for model, _ in found] == ["a", "b"]
    with pytest.raises(ConfigError, match="line 3: unknown key 'gpuz'"):
        jobs_in_yaml("command: a\n---\ngpuz: b\n")
    with pytest.raises(ConfigError, match="job 2 of 2: command is missing"):
        jobs_in_json({"jobs": [{"command": "a"}, {}]})


@pytest.mark.parametrize("body", ["{", '{"a": NaN}', '{"a": 1, "a": 2}', "[" * 100_000, "9" * 5000])
def test_what_is_not_json_is_said_to_be_malformed(body: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_json(body)
    assert caught.value.is_malformed


def test_a_relative_folder_needs_somewhere_to_begin() -> None:
    [(model, raw)] = jobs_in_json({"command": "x", "workdir": "here"})
    with pytest.raises(ConfigError, match="workdir must be an absolute path here"):
        submission_of(model, Defaults("ada"), raw)
    [(model, raw)] = jobs_in_json({"command": "x"})
    assert not submission_of(model, Defaults("ada"), raw).keeps_code, "nobody wants a home copied"


def test_cpu_slots_stand_in_where_there_are_no_gpus(tmp_path: Path) -> None:
    [(model, raw)] = jobs_in_json({"command": "x"})
    assert submission_of(model, Defaults("a", tmp_path, "cpu"), raw).job.demand.gpu_type == "cpu"
    [(model, raw)] = jobs_in_json({"command": "x", "gpus": "H100:1"})
    assert submission_of(model, Defaults("a", tmp_path, "cpu"), raw).job.demand.gpu_type == "H100"


def test_amounts() -> None:
    times = {
        "90s": 90 * SECOND,
        "30m": 30 * MINUTE,
        "4h": 4 * HOUR,
        "2d": 2 * DAY,
        "1h30m": 90 * MINUTE,
        "0.5s": SECOND // 2,
    }
    assert {text: duration_ms(text) for text in times} == times
    assert duration_ms("250ms") == 250
    with pytest.raises(ValueError, match=r"with its unit: 60s or 60m\?"):
        duration_ms("60")
    sizes = {"16GiB": 16 * GIB, "16G": 16 * GIB, "512M": 512 * MIB, "1.5 GB": 3 * GIB // 2, "7B": 7}
    assert {text: size_bytes(text) for text in sizes} == sizes
    for bare in ("16", 16, 1.5):
        with pytest.raises(ValueError, match=rf"with its unit: {bare}G or {bare}M\?"):
            size_bytes(bare)
    assert gpus_of("H100|A100:0.25") == Gpus(1, 1, 250, "H100|A100")
    assert gpus_of("H100") == Gpus(1, 1, 1000, "H100")
    assert array_of("3%2") == Array((0, 1, 2), 2)
    assert array_of("1,5,9-11") == Array((1, 5, 9, 10, 11))
    assert array_of("3") == Array((0, 1, 2))
    for bad in ("", " ", "h", "1h30", "-3s", "1e9d", "9" * 40, True, None, [], "0s", 5, 0.5):
        with pytest.raises(ValueError, match="must be"):
            duration_ms(bad)


@given(
    st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.lists(st.integers(), max_size=3))
)
def test_no_amount_breaks_the_readers(value: object) -> None:
    for read in (duration_ms, size_bytes, gpus_of, array_of):
        assert "\n" not in complaint(ValueError, read, value)


@given(st.text(alphabet="command: gpus-[]{}&*|>'\"\n\t0_x", max_size=80))
def test_no_text_breaks_the_reader_of_files(text: str) -> None:
    assert "\n" not in complaint(ConfigError, jobs_in_yaml, text)


@pytest.mark.parametrize(
    ("command", "launcher", "program"),
    [
        ("python train.py", False, "train.py"),
        ("torchrun --nproc-per-node 2 train.py", True, "train.py"),
        ("cd x && OMP_NUM_THREADS=1 exec torchrun a/b/fit.py", True, "fit.py"),
        ("python3 -m torch.distributed.run go.py", True, "go.py"),
        ("/opt/venv/bin/python3.11 -u -m torch.distributed.launch go.py", True, "go.py"),
        ("python -m my.package --flag", False, "my.package"),
        ("accelerate launch train.py", True, "train.py"),
        ("uv run torchrun x.py", True, "x.py"),
        (("mpirun", "-n", "2", "./solver"), True, "mpirun"),
        (("bash", "-c", "deepspeed train.py"), True, "train.py"),
        ("echo torchrun", False, "echo"),
        ("echo 'unbalanced", False, "echo"),
        ("./run.sh", False, "run.sh"),
        (("sh", "-c", "for i in 1 2; do ./fit $i; done"), False, "fit"),
        (("sh", "-c", "while :; do sleep 1; done"), False, "sleep"),
        (("sh", "-c", "if [ -e x ]; then torchrun a.py; fi"), True, "a.py"),
        (("sh", "-c", "trap '' TERM; cd /data && exec ./solver"), False, "solver"),
        (("sh", "-c", "echo a; echo b"), False, "echo"),
        ("env | grep X", False, "env"),
        ("A=1 env B=2 python train.py", False, "train.py"),
        ("cat data | wc -l", False, "cat"),
        ("time", False, "time"),
    ],
)
def test_a_command_says_what_it_is(command: str, launcher: bool, program: str) -> None:
    assert bool(launcher_of(command)) is launcher
    assert program_of(command) == program


def test_the_published_schema_is_current() -> None:
    assert schema.published() == schema.text(), (
        "run: python -m trainmaster.api.schema > src/trainmaster/api/job.schema.json"
    )


def test_the_schema_and_the_model_agree_on_examples() -> None:
    from jsonschema_rs import validator_for

    check = validator_for(json.loads(schema.published()))
    good = [
        {"command": "x", "gpus": gpus, "max_runtime": time, "memory": size, "array": array}
        for gpus, time, size, array in zip(
            (8, "2-8", 0.5, "H100:2"),
            ("90s", "1h30m", "0.5s", "2d"),
            ("16GiB", "512M", "7B", "1.5T"),
            ("0-99%8", 100, [1, 5], "1,5-9"),
            strict=True,
        )
    ]
    for each in good:
        assert check.is_valid(each), each
        jobs_in_json(each)
    bad = [{}, {"command": ""}, {"command": "x", "gpu": 1}, {"command": "x", "gpus": 0}]
    bad += [{"command": "x", "memory": bare} for bare in (16, "16")]
    for each in bad:
        assert not check.is_valid(each), each
        with pytest.raises(ConfigError):
            jobs_in_json(each)


def test_every_field_of_the_schema_is_described() -> None:
    for name, field in json.loads(schema.published())["properties"].items():
        assert field.get("description"), name


@pytest.mark.parametrize("program", ["apptainer", "enroot", "docker"])
def test_a_container_is_a_command_before_the_command(program: str, tmp_path: Path) -> None:
    """The real shell expands the prefix; a program of that name says what it was given."""
    import os
    import subprocess

    fake = tmp_path / program
    fake.write_text('#!/bin/sh\nfor each; do printf "%s\\n" "$each"; done\n')
    fake.chmod(0o755)
    [(model, _)] = jobs_in_json(
        {
            "command": ["python", "a b.py"],
            "env": {"LR": "1"},
            "container": {program: "my image.sif", "options": ["--opt", "two words"]},
        }
    )
    prefix = prefix_of(model.container, model.env)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TRAINMASTER_SOCKET": "/run/tm/7/socket",
        "TRAINMASTER_CHECKPOINT_DIR": f"{tmp_path}/saved/my job",
        "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2",
        "LR": "1",
    }
    done = subprocess.run(
        [*prefix, "python", "a b.py"], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[-2:] == ["python", "a b.py"]
    assert "my image.sif" in words
    assert words[words.index("--opt") + 1] == "two words"
    assert any("/saved/my job" in word for word in words)
    assert (tmp_path / "saved" / "my job").is_dir()
    assert any(word.startswith("/run/tm/7") for word in words)
    if program == "docker":
        assert '"device=GPU-1,GPU-2"' in words
    if program != "apptainer":
        assert {"LR", "RANK", "TRAINMASTER_SOCKET"} <= set(words)
