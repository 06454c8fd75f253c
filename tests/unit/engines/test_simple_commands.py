"""A text that is one program is run as the rank's own process; any other by a shell that stays."""

from __future__ import annotations

import subprocess

import pytest

from trainmaster.engines.local.simple_commands import as_program, is_one_program

ONE_PROGRAM = [
    "python3 slow.py",
    "  python3 slow.py\n",
    "python3 train.py \\\n  --lr 0.1 \\\n  --seed 3",
    "./train.sh",
    "~/bin/train --name 'a; b && c'",
    "/opt/cd",
    'python -c "print(1); import os"',
    "python -c 'import time\ntime.sleep(1)'",
    "python train.py --seed $TRAINMASTER_ARRAY_INDEX --out ${OUT:-/tmp}",
    'python train.py "$HOME/it\'s here" a\\;b',
    "python train.py > out.txt 2>&1",
    "python train.py >> out.txt < in.txt",
    "torchrun --nproc_per_node=2 train.py lr=0.1",
    "env A=1 python train.py",
    "nohup python train.py",
    "python3.12 train.py # the best seed",
]
"""How most jobs are written."""
FOR_THE_SHELL = [
    "",
    "cd a && python b.py",
    "python a.py; python b.py",
    "python a.py\npython b.py",
    "python a.py | tee log",
    "python a.py || true",
    "python a.py &",
    "python a.py &> log",
    "(python a.py)",
    "{ python a.py; }",
    "! python a.py",
    "A=1 python a.py",
    "A=1",
    "$PYTHON a.py",
    '"$PYTHON" a.py',
    "'my program' a.py",
    "python a.py $(date)",
    'python a.py "$(date; echo "x")"',
    "python a.py `date`",
    "python a.py $((1 + 2))",
    "python a.py <<END\nx\nEND",
    "python a.py $'it\\'s' $'x'",
    "python a.py 'open",
    "python a.py \\",
    "trap 'echo x' TERM",
    "if true; then python a.py; fi",
    "while python a.py",
    "exec python a.py",
    "time python a.py",
    "echo hello",
    "cd /tmp",
    ". ./env.sh",
    ": nothing",
    "[ -f x ]",
    "# a comment",
    "-x",
    "python" + ">>" * 2000 + ";",
]


@pytest.mark.parametrize("text", ONE_PROGRAM)
def test_one_program_takes_the_place_of_the_shell(text: str) -> None:
    assert is_one_program(text)
    assert as_program(("/bin/sh", "-c", text)) == ("/bin/sh", "-c", f"exec {text.lstrip()}")


@pytest.mark.parametrize("text", FOR_THE_SHELL)
def test_everything_else_is_left_to_the_shell(text: str) -> None:
    assert as_program(("/bin/sh", "-c", text)) == ("/bin/sh", "-c", text)


@pytest.mark.parametrize(
    "command", [("python3", "slow.py"), ("bash", "-c", "python3 a.py"), ("/bin/sh", "-c", "x", "y")]
)
def test_lists_are_run_as_they_are(command: tuple[str, ...]) -> None:
    assert as_program(command) == command


@pytest.mark.parametrize(
    "text",
    [
        "env printf '%s|' a\\;b \"$HOME\" 'c d' ${NOT_SET:-e} \\\n  f # g",
        "env sh -c 'exit 7'",
        "env sh -c 'echo said >&2' 2>&1",
        "not-a-program-of-this-machine 2>/dev/null",
    ],
)
def test_the_shell_reads_it_as_before(text: str) -> None:
    before, after = (
        subprocess.run(command, capture_output=True, check=False)
        for command in (("/bin/sh", "-c", text), as_program(("/bin/sh", "-c", text)))
    )
    assert after.args != before.args
    assert (after.returncode, after.stdout) == (before.returncode, before.stdout)
