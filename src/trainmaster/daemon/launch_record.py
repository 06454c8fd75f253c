"""The job of a run, written beside the run at its launch and whenever its user changes it: a store is rebuilt
from it."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from trainmaster.model import codec
from trainmaster.model.codec import CodecError
from trainmaster.model.placement import Placement
from trainmaster.store.rows import StoredJob

COLUMNS = tuple(each.name for each in fields(StoredJob))


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A job as the store has it, and where its run was started."""

    row: StoredJob
    placement: Placement | None
    seq: int = 0
    """The last step of the store then: which of the two is newer."""

    def to_json(self) -> str:
        row = {name: getattr(self.row, name) for name in COLUMNS}
        stated = {"row": row, "placement": codec.encode(self.placement), "seq": self.seq}
        return json.dumps(stated)

    @classmethod
    def from_json(cls, text: str) -> LaunchRecord:
        """ValueError where it is not one."""
        try:
            said = json.loads(text)
            row = {name: value for name, value in said["row"].items() if name in COLUMNS}
            return cls(StoredJob(**row), codec.decode(said["placement"]), said.get("seq", 0))
        except (KeyError, TypeError, CodecError) as error:
            raise ValueError(str(error)) from error
