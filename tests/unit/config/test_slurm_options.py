"""How Slurm writes options and amounts, each in all its forms."""

from __future__ import annotations

import pytest

from trainmaster.config.slurm import amounts
from trainmaster.config.slurm.amounts import GpuRequest
from trainmaster.config.slurm.batch_request import NEEDLESS, NOT_HERE, READERS
from trainmaster.config.slurm.options import LETTERS, TAKES, read_options
from trainmaster.config.slurm.script import is_batch_script, read_script
from trainmaster.config.slurm.shell_words import words
from trainmaster.config.slurm.steps import steps
from trainmaster.config.units import duration_ms

TIMES = {
    "90": 90 * 60,
    "90:30": 90 * 60 + 30,
    "01:30:00": 5400,
    "100:00:00": 360_000,
    "2-12": 60 * 3600,
    "2-12:30": 60 * 3600 + 1800,
    "1-02:03:04": 93_784,
    "0-0:5": 300,
    "UNLIMITED": None,
    "INFINITE": None,
    "0": None,
}


@pytest.mark.parametrize("text", TIMES)
def test_times(text: str) -> None:
    seconds = amounts.seconds_of(text)
    assert seconds == TIMES[text]
    if seconds:
        assert duration_ms(amounts.duration(seconds)) == seconds * 1000


@pytest.mark.parametrize("text", ["soon", "1:2:3:4", "-5", "1-", "1d", ""])
def test_what_is_not_a_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        amounts.seconds_of(text)


def test_sizes() -> None:
    assert [amounts.bytes_of(each) for each in ("4000", "16G", "512m", "1T", "1.5GB", "0")] == [
        *(4000 << 20, 16 << 30, 512 << 20, 1 << 40, 3 << 29, 0)
    ]
    assert [amounts.size(each) for each in (16 << 30, 4000 << 20, 1)] == ["16G", "4000M", "1M"]


def test_gpus() -> None:
    assert amounts.gpus_of("4") == GpuRequest(4)
    assert amounts.gpus_of("a100:4") == GpuRequest(4, "A100")
    assert amounts.gpus_of("a100") == GpuRequest(1, "A100")
    assert amounts.gres_of("gpu") == ("gpu", GpuRequest(1))
    assert amounts.gres_of("gpu:2") == ("gpu", GpuRequest(2))
    assert amounts.gres_of("gpu:a100:4(S:0-1)") == ("gpu", GpuRequest(4, "A100"))
    assert amounts.gres_of("gres/gpu=2") == ("gpu", GpuRequest(2))
    assert amounts.gres_of("gpu:1g.10gb:1") == ("gpu", GpuRequest(1, "1g.10gb"))
    assert amounts.gres_of("mps:50") == ("mps", GpuRequest(50))


ARRAYS = {
    "0-15": ("0-15", 16),
    "5": ("5-5", 1),
    "1,3,5,7": ("1,3,5,7", 4),
    "0-100:25,7%3": ("0,7,25,50,75,100%3", 6),
    "1-4,10-12%2": ("1-4,10-12%2", 7),
    "[0-3]": ("0-3", 4),
}


@pytest.mark.parametrize("text", ARRAYS)
def test_arrays(text: str) -> None:
    indices, limit = amounts.array_of(text)
    assert (amounts.indices_text(indices, limit), len(indices)) == ARRAYS[text]


def test_options_in_all_their_forms() -> None:
    given = (
        "--nodes=2 --ntasks 8 -c4 -t 1:00 -J=x --exclusive --nice=5 -Hv --part=y --cpu_bind=none"
    )
    said, used = read_options(given.split())
    assert used == len(given.split())
    assert [(each.name, each.value) for each in said] == [
        ("nodes", "2"),
        ("ntasks", "8"),
        ("cpus-per-task", "4"),
        ("time", "1:00"),
        ("job-name", "x"),
        ("exclusive", None),
        ("nice", "5"),
        ("hold", None),
        ("verbose", None),
        ("partition", "y"),
        ("cpu-bind", "none"),
    ]
    said, used = read_options(["--bogus=1", "-n", "2", "python", "-n", "3"])
    assert [each.is_known for each in said] == [False, True]
    assert used == 3


def test_every_option_of_the_tables_is_one_of_sbatch() -> None:
    assert set(LETTERS.values()) <= set(TAKES)
    for table in (READERS, NOT_HERE, NEEDLESS):
        assert set(table) <= set(TAKES)
    assert not set(READERS) & set(NOT_HERE)
    assert not (set(READERS) | set(NOT_HERE)) & set(NEEDLESS)


def test_directives_end_at_the_first_command() -> None:
    script = read_script(
        "#!/bin/bash -l\r\n#SBATCH --time=5 # minutes\n\n# text\n##SBATCH -N9\n #SBATCH -N8\n"
        "#SBATCH -J 'two words' -p a\nhostname\n#SBATCH -N7\n"
    )
    assert script.interpreter == ("/bin/bash", "-l")
    assert [(each.line, each.said.name, each.said.value) for each in script.directives] == [
        (2, "time", "5"),
        (7, "job-name", "two words"),
        (7, "partition", "a"),
    ]
    assert [each.line for each in script.ignored] == [9]
    assert is_batch_script("#!/bin/sh\n#SBATCH -n1\n")
    assert not is_batch_script("command: python a.py\n# like #SBATCH\n")


def test_words_keep_their_quotes_and_places() -> None:
    text = 'a \'b c\' "$(d "e f")" g\\ h;i'
    assert [each.text for each in words(text)] == ["a", "'b c'", '"$(d "e f")"', "g\\ h", ";", "i"]
    assert all(text[each.start : each.end] == each.text for each in words(text))


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("srun python a.py", "python a.py"),
        ("srun -n 2 --label python a.py -n 3", "python a.py -n 3"),
        ("srun --cpu-bind=none \\\n  --mem 4G \\\n  torchrun x.py", "torchrun x.py"),
        ('ip=$(srun -N1 -w "$head" hostname -i)', "hostname -i)"),
        ("time srun -- ./a.out", "./a.out"),
        ("cd x && srun -K1 ./a.out", "./a.out"),
        ('LAUNCH="srun -n4 --kill-on-bad-exit=1 python"', 'python"'),
        ("srun --export=ALL,A=1 env", "env"),
    ],
)
def test_a_step_is_found_with_its_options(line: str, rest: str) -> None:
    (step,) = steps(line)
    assert line[step.command_at :] == rest


@pytest.mark.parametrize(
    "line",
    ["# srun python", "echo srun", "./srun x", "srun_args=1", "mysrun a", 'echo "a" # srun b'],
)
def test_what_is_not_a_step(line: str) -> None:
    assert list(steps(line)) == []
