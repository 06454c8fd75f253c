"""What a training program may import. Only the standard library is needed.

    import trainmaster.sdk

    with trainmaster.sdk.run() as tm:
        found = tm.load()
        ...
        for step in range(found.step if found else 0, total):
            loss = train(batch)
            tm.progress(step=step + 1, loss=loss, total_steps=total)
            if tm.should_stop():
                tm.save(state, step + 1)
                break

The same program runs by itself: then it keeps its checkpoints in a local folder, and reports nothing.
`trainmaster.sdk.torch` has what PyTorch programs need on top; docs/sdk.md tells it all.
"""

from trainmaster.sdk.checkpoints import Loaded
from trainmaster.sdk.session import Session, run

__all__ = ["run", "Session", "Loaded"]
