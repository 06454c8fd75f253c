"""`trainmaster_sdk` by the name it has in the full package; training environments need only that wheel."""

from trainmaster_sdk import Loaded, Session, run

__all__ = ["run", "Session", "Loaded"]
