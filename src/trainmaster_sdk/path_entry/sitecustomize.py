"""Runs at the start of every Python program of a job: Trainmaster puts this folder first in PYTHONPATH.

It makes `trainmaster_sdk` importable where it is not installed, and has optimizer steps counted as soon as
the program imports torch. Then it takes itself out of sys.path and imports the program's own sitecustomize,
if there is one. Nothing that goes wrong here reaches the program. It is written for every version of Python,
so without annotations.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SDK = os.path.dirname(HERE)
OPTIMIZERS = "torch.optim.optimizer"


class SdkFinder:
    """Finds `trainmaster_sdk` if nothing else does: one that the program has installed goes first."""

    def find_spec(self, name, path=None, target=None):
        if name != "trainmaster_sdk":
            return None
        from importlib.util import spec_from_file_location

        init = os.path.join(SDK, "__init__.py")
        return spec_from_file_location(name, init, submodule_search_locations=[SDK])


class TorchWatcher:
    """Waits for torch to be imported; otherwise each import pays for one comparison."""

    def find_spec(self, name, path=None, target=None):
        if name != OPTIMIZERS:
            return None
        try:
            sys.meta_path.remove(self)
            from importlib.util import find_spec

            found = find_spec(name)
            count_after_load(found.loader)
            return found
        except Exception:
            return None


def count_after_load(loader):
    """Have steps counted once this loader has executed its module."""
    execute = loader.exec_module

    def exec_module(module):
        del loader.exec_module
        execute(module)
        try:
            if is_first():
                from trainmaster_sdk import step_counter

                step_counter.install(module)
                from trainmaster_sdk import step_times  # not in an earlier SDK that is installed

                step_times.install(module)
            from trainmaster_sdk import own_times  # nor is this

            own_times.install(module)
            if is_first():
                from trainmaster_sdk import step_profile  # nor this

                step_profile.install(module)
        except Exception:
            pass

    loader.exec_module = exec_module


def is_first():
    """Rank 0 counts for all; each rank measures its own times."""
    return os.environ.get("RANK") in (None, "", "0")


def should_count():
    """Under a supervisor, unless the job does not want it."""
    is_off = os.environ.get("TRAINMASTER_COUNT_STEPS") == "0"
    asked_by = ("TRAINMASTER_SOCKET", "TRAINMASTER_STEP_TIMES", "TRAINMASTER_STEP_PROFILE")
    return not is_off and any(os.environ.get(each) for each in asked_by)


try:
    if sys.version_info >= (3, 8):  # noqa: UP036
        sys.meta_path.append(SdkFinder())
        if should_count():
            sys.meta_path.insert(0, TorchWatcher())
except Exception:
    pass

sys.path[:] = [each for each in sys.path if os.path.abspath(each) != HERE]
sys.modules.pop(__name__, None)
import sitecustomize  # noqa: E402, F401
