"""Tells the program of a command from its arguments, also behind a launcher and in a text for the shell.

`torchrun --nproc-per-node 2 train.py --lr 1` and `bash -c "torchrun train.py --lr 2"` run the same program,
`torchrun train.py`, with other arguments. Of several commands (`python prepare.py && python train.py`) the
program is all of theirs. Where it cannot be found, all words of that command are the program: so two programs
are never taken for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from trainmaster.config.command_line import (
    BUILTINS,
    PYTHON,
    SHELLS,
    VALUED,
    Command,
    base_name,
    launcher,
    shell_code,
    simple_commands,
)

Words = tuple[str, ...]
Split = tuple[Words, Words]
"""The words of the program, and its arguments."""
SCRIPT = (".py", ".sh")
MODULE = frozenset({"-m", "--module"})
FLAGS: Mapping[str, frozenset[str]] = {
    "torchrun": frozenset(
        {"--standalone", "--no-python", "--run-path", "--virtual-local-rank", "--use-env"}
    ),
    "accelerate": frozenset(
        {
            *("-q", "--quiet", "--cpu", "--multi-gpu", "--debug", "--no-python", "--same-network"),
            *("--dynamo-use-dynamic", "--dynamo-use-fullgraph", "--enable-cpu-affinity"),
            *("--dynamo-use-regional-compilation", "--fp8-use-autocast-during-eval"),
            *("--tpu", "--tpu-cluster", "--no-tpu-cluster", "--tpu-use-sudo", "--downcast-bf16"),
            *("--use-deepspeed", "--use-fsdp", "--use-megatron-lm", "--use-parallelism-config"),
        }
    ),
    "deepspeed": frozenset(
        {
            *("--no-python", "--no-local-rank", "--no-ssh-check", "--no-ssh", "--force-multi"),
            *("--save-pid", "--elastic-training", "--bind-cores-to-rank"),
        }
    ),
}
"""Options of launchers that take no value; all others take one. `_` is the same as `-`."""
CONTAINERS = frozenset({"apptainer", "singularity", "docker", "podman", "enroot"})
WRAPPERS = CONTAINERS | {
    *("mpirun", "mpiexec", "horovodrun", "srun", "timeout", "numactl", "taskset", "ionice"),
    *("nsys", "ncu", "strace", "sudo", "doas", "xvfb-run"),
}
"""Programs that start another one, after options of their own."""


Places = Mapping[int, str]
"""Which words of a simple command are its program, and how each is called."""


@lru_cache(maxsize=4096)
def split_program(command: Command) -> Split:
    """The program that a command runs, and its arguments; cached, because many jobs have the same one."""
    commands = simple_commands(command)
    is_prepared = any(each.words and not _is_builtin(each.words) for each in commands)
    program: list[str] = []
    arguments: list[str] = []
    for each in commands:
        places = _preparation(each.words) if _is_builtin(each.words) else _places(each.words)
        if not is_prepared and each.words:
            places = {0: each.words[0]}
        program += [places[at] for at in sorted(places)]
        arguments += each.before
        arguments += [word for at, word in enumerate(each.words) if at not in places]
    return tuple(program), tuple(arguments)


def _is_builtin(words: Words) -> bool:
    return bool(words) and base_name(words[0]) in BUILTINS


def _preparation(words: Words) -> Places:
    """What prepares for a program is one of its arguments, but for the folder that it is found in."""
    return dict(enumerate(words)) if words[0] == "cd" else {}


def _places(words: Words) -> Places:
    if not words:
        return {}
    name, named = base_name(words[0]), launcher(words)
    if named in FLAGS:
        return _of_launcher(named, words)
    if PYTHON.fullmatch(name):
        return _of_python(words)
    if name in SHELLS:
        at = shell_code(words) or _first_positional(words, 1)
        return _picked(words, 0, at)
    if name in WRAPPERS or name.startswith(
        "-"
    ):  # `nice -n 5` leaves its options before the program
        return _of_wrapper(words)
    return _behind(words, _started_by_unknown(words)) or _picked(words, 0)


def _of_launcher(name: str, words: Words) -> Places:
    start = 1 + (words.index("-m") + 1 if PYTHON.fullmatch(base_name(words[0])) else 0)
    if words[0].endswith("accelerate"):
        if words[1:2] != ("launch",):
            return dict(enumerate(words))
        start += 1
    at = _script(words, start, FLAGS[name])
    return dict(enumerate(words)) if at is None else {0: name, at: words[at]}


def _script(words: Words, start: int, flags: frozenset[str]) -> int | None:
    """Where the script or the module is, after the options of a launcher."""
    at = start
    while at < len(words) and words[at].startswith("-"):
        option = words[at].replace("_", "-")
        takes_value = "=" not in option and option not in flags and option not in MODULE
        is_script_next = words[at + 1 : at + 2] and words[at + 1].endswith(SCRIPT)
        at += 2 if takes_value and not is_script_next else 1
    return at if at < len(words) else None


def _of_python(words: Words) -> Places:
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at][1:2] != "-" and words[at][-1] in "mc":
            return _picked(words, 0, at, at + 1)
        at += 2 if words[at] in VALUED else 1
    return _picked(words, 0, at)


def _of_wrapper(words: Words) -> Places:
    """The wrapper and the program that it starts; all its words where that is not seen."""
    places = range(1, len(words))
    at = next((at for at in places if _is_known(words[at]) or _is_script(words[at])), None)
    is_contained = any(base_name(word) in CONTAINERS for word in words[:at])
    if at is None and not is_contained:  # a container's `./` may be a folder or an image
        at = next((at for at in places if _is_local(words, at)), None)
    has_image_between = any(word.startswith("--entrypoint") for word in words[:at])
    if at is None or has_image_between:
        return dict(enumerate(words))
    found = _behind(words, at)
    return {at: word for at, word in found.items() if at or not word.startswith("-")}


def _started_by_unknown(words: Words) -> int | None:
    """Where a program that is not known names one that it starts.

    After an option such a name is its value (`--strategy deepspeed`), but for Python's.
    """
    return next(
        (
            at
            for at in range(1, len(words))
            if _is_known(words[at])
            and (PYTHON.fullmatch(base_name(words[at])) or not words[at - 1].startswith("-"))
        ),
        None,
    )


def _behind(words: Words, at: int | None) -> Places:
    """The first word, and the program that starts there."""
    if at is None:
        return {}
    return {0: words[0]} | {at + place: word for place, word in _places(words[at:]).items()}


def _is_known(word: str) -> bool:
    name = base_name(word)
    is_known = PYTHON.fullmatch(name) is not None or name in SHELLS or name in FLAGS
    return is_known and ":" not in word  # `-v /opt/python:/python` names folders


def _is_script(word: str) -> bool:
    return word.endswith(SCRIPT) and ":" not in word


def _is_local(words: Words, at: int) -> bool:
    """Whether a file of this folder is named there that is not the value of an option."""
    before = words[at - 1]
    return words[at].startswith("./") and ("=" in before or not before.startswith("-"))


def _first_positional(words: Words, start: int) -> int:
    return next(
        (at for at in range(start, len(words)) if not words[at].startswith("-")), len(words)
    )


def _picked(words: Words, *places: int) -> Places:
    return {at: words[at] for at in places if at < len(words)}
