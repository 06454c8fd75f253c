"""Runs programs, each in a process of its own, and writes for each what it wrote and how it ended.

PyTorch is imported once: the processes are forks of this one. `python run_programs.py OUT PROGRAM...`
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import torch
import torch.distributed
import torch.utils.data  # noqa: F401


def run(program: str) -> None:
    """As `python PROGRAM` or `bash PROGRAM` would, up to the frames of this file."""
    if program.endswith(".sh"):
        os.execvp("bash", ["bash", program])
    sys.argv = [program]
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as left:
        sys.stdout.flush()
        if left.code is not None and not isinstance(left.code, int):
            print(left.code, file=sys.stderr, flush=True)
        os._exit(left.code if isinstance(left.code, int) else 0 if left.code is None else 1)
    except BaseException:
        sys.stdout.flush()
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def main(out: Path, programs: list[str]) -> None:
    children = {}
    for program in programs:
        file = os.open(out / f"{Path(program).stem}.log", os.O_WRONLY | os.O_CREAT)
        child = os.fork()
        if child == 0:
            os.dup2(file, 1)
            os.dup2(file, 2)
            run(program)
        os.close(file)
        children[child] = program
        if len(children) >= 4:
            wait(out, children)
    while children:
        wait(out, children)


def wait(out: Path, children: dict[int, str]) -> None:
    """For one of them to end."""
    child, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    program = children.pop(child)
    (out / f"{Path(program).stem}.code").write_text(str(code if code >= 0 else 128 - code))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
