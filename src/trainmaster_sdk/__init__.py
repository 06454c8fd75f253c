"""What a training program may import. Only the standard library is needed.

    import trainmaster_sdk

    with trainmaster_sdk.run() as tm:
        found = tm.load()
        ...
        for step in range(found.step if found else 0, total):
            loss = train(batch)
            tm.progress(step=step + 1, loss=loss, total_steps=total)
            if tm.should_stop():
                tm.save(state, step + 1)
                break

The same program runs by itself: then it keeps its checkpoints in a local folder, and reports nothing.
`trainmaster_sdk.torch` has what PyTorch programs need on top; docs/sdk.md tells it all.
"""

from trainmaster_sdk.checkpoints import Loaded
from trainmaster_sdk.session import Session, run

__version__ = "0.1.0"
__all__ = ["run", "Session", "Loaded"]
