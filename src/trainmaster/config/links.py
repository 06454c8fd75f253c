"""Measured links between GPUs by the level that they cross: a file of their own, or part of another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from trainmaster.config.validation import FileModel, Label, checked, positive
from trainmaster.config.yaml_file import read_mapping
from trainmaster.model.topology import Link

GIGA = 1_000_000_000
PAGE = "docs/throughput.md"
MeasuredLinks = tuple[tuple[str, Link], ...]
"""As a topology has them."""


class LinkEntry(FileModel):
    """`{gb_s: 11.3, latency_us: 12}`: what a ring of all-reduces gets of it."""

    bytes_per_s: Annotated[int, positive(GIGA)] = Field(alias="gb_s")
    latency_us: Annotated[int, Field(ge=0, le=10**9)]


LinkTable = dict[Label, LinkEntry]


class LinksFile(FileModel):
    links: Annotated[LinkTable, Field(min_length=1)]


def links_of(table: Mapping[str, LinkEntry]) -> MeasuredLinks:
    return tuple((level, Link(each.bytes_per_s, each.latency_us)) for level, each in table.items())


def links_in(text: str, where: str) -> MeasuredLinks:
    """Those of a links file; ConfigError where it cannot be used."""
    raw, lines = read_mapping(text, where, PAGE)
    return links_of(checked(LinksFile, raw, where, lines).links)


def links_text(links: MeasuredLinks) -> str:
    """The file that says so."""
    rows = [
        f"  {level}: {{gb_s: {each.bytes_per_s / GIGA:.9g}, latency_us: {each.latency_us}}}\n"
        for level, each in links
    ]
    return "links:\n" + "".join(rows)
