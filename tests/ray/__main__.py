"""Runs the tests of the Ray engine in a network namespace of their own, or against a cluster of the user's.

python -m tests.ray [PATHS AND OPTIONS OF PYTEST]
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.ray import namespace

HERE = os.path.dirname(__file__)


def main(words: list[str]) -> int:
    try:
        import ray  # noqa: F401
    except ImportError:
        print("Ray is not installed here: `make test-ray` installs it.", file=sys.stderr)
        return 1
    os.environ[namespace.RUNS] = "1"
    if not os.environ.get(namespace.ADDRESS):
        try:
            namespace.enter()
        except namespace.NoNamespace as refusal:
            print(refusal, file=sys.stderr)
            return 1
    paths = [word for word in words if not word.startswith("-")] or [HERE]
    options = [word for word in words if word.startswith("-")]
    return int(pytest.main([*options, *paths]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
