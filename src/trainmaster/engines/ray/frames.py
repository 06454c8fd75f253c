"""Values between the manager and its gateway: each one pickled, after its length."""

from __future__ import annotations

import asyncio
import pickle
import struct
from typing import Any

_LENGTH = struct.Struct("!Q")


def framed(value: object) -> bytes:
    data = pickle.dumps(value)
    return _LENGTH.pack(len(data)) + data


async def next_value(stream: asyncio.StreamReader) -> Any:
    """EOFError where the other side has ended."""
    try:
        (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
        return pickle.loads(await stream.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        raise EOFError from None
