"""What an operator allows of the options of containers."""

from __future__ import annotations

import pytest

from trainmaster.config.container_options import ANY, HARMLESS, refusal


@pytest.mark.parametrize(
    ("options", "allowed", "is_allowed"),
    {
        "nothing asked": ([], (), True),
        "anything goes": (["--privileged", "-v", "/:/host"], ANY, True),
        "a harmless one": (["--shm-size", "8g", "--env=A=b"], HARMLESS, True),
        "root by another name": (["--privileged"], HARMLESS, False),
        "the host's disk": (["-v", "/:/host"], HARMLESS, False),
        "a device": (["--device=/dev/sda"], HARMLESS, False),
        "a word without an option": (["image2"], HARMLESS, False),
        "an allowed folder": (["--bind", "/data/sets"], ("--bind=/data/*",), True),
        "an allowed folder by =": (["--bind=/data/sets"], ("--bind=/data/*",), True),
        "another folder": (["--bind", "/etc"], ("--bind=/data/*",), False),
        "a way up": (["--bind", "/data/../etc"], ("--bind=/data/*",), False),
        "hidden behind a good one": (["--shm-size=8g", "--privileged"], HARMLESS, False),
    }.values(),
)
def test_only_what_is_allowed_passes(
    options: list[str], allowed: tuple[str, ...], is_allowed: bool
) -> None:
    said = refusal(options, allowed)
    assert (said == "") == is_allowed
