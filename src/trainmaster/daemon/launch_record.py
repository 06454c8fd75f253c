"""What the manager writes down with each launch, in the run's folder, so that a store can be rebuilt."""

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

    def to_json(self) -> str:
        row = {name: getattr(self.row, name) for name in COLUMNS}
        return json.dumps({"row": row, "placement": codec.encode(self.placement)})

    @classmethod
    def from_json(cls, text: str) -> LaunchRecord:
        """ValueError where it is not one."""
        try:
            said = json.loads(text)
            row = {name: value for name, value in said["row"].items() if name in COLUMNS}
            return cls(StoredJob(**row), codec.decode(said["placement"]))
        except (KeyError, TypeError, CodecError) as error:
            raise ValueError(str(error)) from error
