"""How many apps there have been over time, for means over a life: a part of a policy's memo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.model.codec import stored_as
from trainmaster.model.plan import FrozenMap

NOBODY: FrozenMap[str, tuple[int, int]] = FrozenMap()


@stored_as("themis.AppCount")
@dataclass(frozen=True, slots=True)
class AppCount:
    """The number of apps, integrated over time."""

    area: int = 0
    """Apps x ms up to `counted_ms`."""
    counted_ms: int = 0
    apps: int = 0
    arrived: FrozenMap[str, tuple[int, int]] = NOBODY
    """By app: when it came, and the area then."""

    def counted(self, apps: Mapping[str, object], now: int) -> AppCount:
        """With those that are here now: who is new has just come, who is missing has just gone."""
        new = [name for name in apps if name not in self.arrived]
        if not new and self.apps == len(apps):
            return self
        area = self._area_at(now)
        arrived = self.arrived.updated(dict.fromkeys(new, (now, area))).only(apps)
        return AppCount(area, now, len(apps), arrived)

    def life_of(self, app: str, now: int) -> int:
        """ms since it came."""
        return now - self.arrived[app][0]

    def mean_since(self, app: str, now: int) -> float:
        """Mean number of apps since this one came, itself included; how many there are if just now."""
        start, area = self.arrived[app]
        return (self._area_at(now) - area) / (now - start) if now > start else float(self.apps)

    def _area_at(self, now: int) -> int:
        return self.area + self.apps * (now - self.counted_ms)
