"""Which of NVIDIA's GPUs the processes of a control group may open; all other device files are left alone.

/dev/nvidia0 to /dev/nvidia253 are GPUs. nvidia-modeset (254) and nvidiactl (255), which every CUDA program
opens, stay open; nvidia-uvm and the capabilities of MIG slices have major numbers of their own. Version 2 of
control groups asks a BPF program, version 1 has a list. Only the standard library: supervisors load this.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Collection

MAJOR = 195
GPUS = range(254)

SYSCALL = {"x86_64": 321, "aarch64": 280}
PROG_LOAD, PROG_ATTACH, PROG_DETACH = 5, 8, 9
CGROUP_DEVICE_PROGRAM, CGROUP_DEVICE = 15, 6
ALLOW_MULTI = 2
"""Beside the programs of groups above, systemd's for example: all of them have to agree."""
ACCESS, DEVICE_MAJOR, DEVICE_MINOR = 0, 4, 8
"""Where the kernel says what is opened (struct bpf_cgroup_dev_ctx)."""
TYPE_MASK, CHARACTER_DEVICE = 0xFFFF, 2
LOAD_WORD, AND, MOVE = 0x61, 0x57, 0xB7
JUMP_EQUAL, JUMP_UNEQUAL, JUMP_ABOVE, EXIT = 0x15, 0x55, 0x25, 0x95
JUMPS = (JUMP_EQUAL, JUMP_UNEQUAL, JUMP_ABOVE)
RESULT, CONTEXT, VALUE = 0, 1, 2
"""Registers."""
INSTRUCTION_BYTES, ATTRIBUTE_BYTES = 8, 128

_libc = ctypes.CDLL(None, use_errno=True)


class DeviceFilter:
    """The filter of one group, which the groups in it have too."""

    def __init__(self, group: str, version: int) -> None:
        self._group = group
        self._version = version
        self._program: int | None = None
        """The one that is attached."""

    def allow(self, minors: Collection[int]) -> None:
        """These GPUs and no others; OSError where the kernel refuses that."""
        if self._version == 1:
            _write_rules(self._group, "devices.allow", minors)
            _write_rules(self._group, "devices.deny", [each for each in GPUS if each not in minors])
            return
        group = os.open(self._group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            program, last = _loaded(filter_program(minors)), self._program
            _call(PROG_ATTACH, struct.pack("=IIII", group, program, CGROUP_DEVICE, ALLOW_MULTI))
            self._program = program
            if last is not None:
                _detach(group, last)
        finally:
            os.close(group)


def filter_program(minors: Collection[int]) -> bytes:
    """BPF that returns 1 for what may be opened, and 0 for a GPU that is not among these."""
    lines = [
        (MOVE, RESULT, 0, 1),
        (LOAD_WORD, VALUE, ACCESS, 0),
        (AND, VALUE, 0, TYPE_MASK),
        (JUMP_UNEQUAL, VALUE, 0, CHARACTER_DEVICE),
        (LOAD_WORD, VALUE, DEVICE_MAJOR, 0),
        (JUMP_UNEQUAL, VALUE, 0, MAJOR),
        (LOAD_WORD, VALUE, DEVICE_MINOR, 0),
        (JUMP_ABOVE, VALUE, 0, GPUS[-1]),
        *((JUMP_EQUAL, VALUE, 0, minor) for minor in sorted(minors)),
        (MOVE, RESULT, 0, 0),
        (EXIT, 0, 0, 0),
    ]
    to_exit = range(len(lines) - 2, -2, -1)
    return b"".join(map(_instruction, lines, to_exit))


def _instruction(line: tuple[int, int, int, int], to_exit: int) -> bytes:
    """Every jump goes to the exit; every load reads what the kernel says."""
    code, register, offset, value = line
    source = CONTEXT << 4 if code == LOAD_WORD else 0
    return struct.pack(
        "=BBhi", code, source | register, to_exit if code in JUMPS else offset, value
    )


def _loaded(program: bytes) -> int:
    """A descriptor of the program, which is closed when another one is executed."""
    lines, licence = ctypes.create_string_buffer(program), ctypes.create_string_buffer(b"")
    at = (ctypes.addressof(lines), ctypes.addressof(licence))
    count = len(program) // INSTRUCTION_BYTES
    return _call(PROG_LOAD, struct.pack("=IIQQ", CGROUP_DEVICE_PROGRAM, count, *at))


def _detach(group: int, program: int) -> None:
    """A group that was removed since, and made again, has it no more."""
    try:
        _call(PROG_DETACH, struct.pack("=III", group, program, CGROUP_DEVICE))
    except FileNotFoundError:
        pass
    finally:
        os.close(program)


def _call(command: int, said: bytes) -> int:
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    attributes = ctypes.create_string_buffer(said, ATTRIBUTE_BYTES)
    result: int = _libc.syscall(number, command, attributes, ATTRIBUTE_BYTES)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _write_rules(group: str, name: str, minors: Collection[int]) -> None:
    """The kernel takes one rule in each write."""
    file = os.open(os.path.join(group, name), os.O_WRONLY | os.O_CLOEXEC)
    try:
        for minor in minors:
            os.write(file, f"c {MAJOR}:{minor} rwm".encode())
    finally:
        os.close(file)
