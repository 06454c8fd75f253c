"""Whether a Ray cluster lets this process in, which it may ask for a token.

    python -m trainmaster.engines.ray.admission HOST:PORT

prints why not, or nothing. `ray.init` itself tries for 20 s, and then does not say why.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module

MODE = "RAY_AUTH_MODE"
PATH = "RAY_AUTH_TOKEN_PATH"
SETTINGS = (MODE, PATH)
"""Variables that say how to be let in, without the token itself."""
PLACES = f"in ~/.ray/auth_token, or in a file that {PATH} names"


def refusal(address: str) -> str:
    """One sentence; empty where nothing is known that keeps it out."""
    from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
    from ray.exceptions import AuthenticationError

    try:
        ensure_token_if_auth_enabled(create_token_if_missing=False)
    except AuthenticationError:
        return without_token()
    try:
        import_module("ray._raylet").GcsClient(address=address)
    except AuthenticationError:
        return not_let_in(address, os.environ)
    except Exception:  # whatever Ray raises: `ray.init` says it
        return ""
    return ""


def without_token() -> str:
    return f"{MODE}=token is set here, and there is no token: put that of the cluster {PLACES}."


def not_let_in(address: str, environ: Mapping[str, str]) -> str:
    if environ.get(MODE, "").lower() != "token":
        return (
            f"The Ray cluster at {address} asks for a token: set {MODE}=token here, and put its token"
            f" {PLACES}."
        )
    return (
        f"The Ray cluster at {address} does not accept the token of this machine: put the one of its head"
        f" {PLACES}."
    )


if __name__ == "__main__":
    sys.stdout.write(refusal(sys.argv[1]))
