"""The cluster file: racks or deeper trees of nodes, device types, planned changes.

`docs/simulator.md` shows the file by example.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from trainmaster.config.links import LinkTable, links_of
from trainmaster.config.validation import (
    MOST,
    ConfigError,
    FileModel,
    Label,
    Lines,
    OneOrMore,
    amount,
    checked,
    line_of,
    located,
    named,
    positive,
    shown,
)
from trainmaster.model.events import (
    NodeChange,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    NodeUndrained,
)
from trainmaster.model.topology import (
    CPU_TYPE,
    INSIDE_NODE,
    ISLAND_LEVELS,
    MOST_GPUS,
    GpuType,
    NodeSpec,
    Topology,
    TopologyError,
    build,
)
from trainmaster.model.units import GIB, NOMINAL, SECOND, WHOLE
from trainmaster.text.suggest import did_you_mean

DEFAULT_LEVELS = ("fabric", "rack")
"""Levels between cluster and node that may be used without naming them in `levels`."""
RESERVED_LEVELS = ("cluster", "node", *ISLAND_LEVELS, "gpu")
CHANGES: Mapping[str, type[NodeDraining | NodeUndrained | NodeLeft | NodeJoined]] = {
    "drain": NodeDraining,
    "undrain": NodeUndrained,
    "leave": NodeLeft,
    "join": NodeJoined,
}
ISLAND_KEYS = ("sockets", "pcie_switches", "islands")
"""The inside of a node, outermost first: one key for each of `ISLAND_LEVELS`."""
MOST_NODES = 100_000


Names = Annotated[list[Label], OneOrMore]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a file says: the tree, and what is planned to happen to its nodes."""

    topology: Topology
    changes: tuple[NodeChange, ...] = ()


class TypeEntry(FileModel):
    memory: Annotated[int, positive(GIB)] = Field(default=0, alias="memory_gib")
    speed_ppm: Annotated[int, positive(NOMINAL)] = Field(default=0, alias="speed")
    price_per_hour: Annotated[float, Field(ge=0, le=MOST)] = 0.0


class NodeEntry(FileModel):
    """One node by name, or several by count."""

    name: Label | None = None
    count: Annotated[int, Field(ge=1, le=MOST_NODES)] = 1
    prefix: Label = "n"
    gpus: Annotated[int, Field(ge=0, le=MOST_GPUS)] | None = None
    cpu_slots: Annotated[int, Field(ge=1, le=MOST_GPUS)] | None = None
    type: Label | None = None
    sockets: Annotated[int, Field(ge=1)] = 1
    pcie_switches: Annotated[int, Field(ge=1)] = 1
    islands: Annotated[int, Field(ge=1)] = 1
    cpus: Annotated[int, amount(WHOLE)] | None = None
    memory: Annotated[int, amount(GIB)] | None = Field(default=None, alias="memory_gib")

    @field_validator("type")
    @classmethod
    def _is_known(cls, name: str | None, info: ValidationInfo) -> str | None:
        known = (info.context or {}).get("types", ())
        known = [each for each in known if each != CPU_TYPE]
        if name is not None and name not in known:
            raise ValueError(f"is {name!r}, which is not among types; {did_you_mean(name, known)}")
        return name

    @model_validator(mode="after")
    def _fits_together(self) -> NodeEntry:
        stated = self.model_fields_set
        if self.name is not None and {"count", "prefix"} & stated:
            raise ValueError("has a name; count and prefix are for nameless nodes")
        if (self.gpus is None) == (self.cpu_slots is None):
            raise ValueError("needs either gpus or cpu_slots")
        if self.cpu_slots is not None and {"type", *ISLAND_KEYS} & stated:
            raise ValueError("has CPU slots; they have no type and no islands")
        outer, around = 1, ""
        for key in (each for each in ISLAND_KEYS if each in stated):
            count = getattr(self, key)
            if count > max(1, self.gpus or 0):
                raise ValueError(f"has more {key} than GPUs")
            if count % outer:
                raise ValueError(f"must have {key} in a multiple of {around}, {outer}, not {count}")
            outer, around = count, key
        return self

    def spec(self, path: tuple[int, ...], types: Mapping[str, GpuType]) -> NodeSpec:
        """A node of this kind, still without its name."""
        cpus, slots = self.cpus, self.cpu_slots
        if slots is not None and cpus is None:
            cpus = slots * WHOLE
        return NodeSpec(
            name="",
            gpus=slots or self.gpus or 0,
            path=path,
            type=types[CPU_TYPE] if slots else types[self.type] if self.type else GpuType(),
            cpus=cpus,
            memory=self.memory,
            islands=self.islands,
            sockets=self.sockets,
            switches=self.pcie_switches,
        )


class Domain(FileModel):
    """The cluster, or a part of it such as a rack: nodes, or domains of a level below."""

    nodes: Annotated[list[NodeEntry], OneOrMore] | None = None

    @model_validator(mode="after")
    def _holds_one_kind(self) -> Domain:
        inner = [name for name, _ in self._choices() if getattr(self, name) is not None]
        if len(inner) != 1:
            choices = " or ".join(key for _, key in self._choices())
            raise ValueError(f"needs either {choices}, not both" if inner else f"needs {choices}")
        return self

    def _choices(self) -> list[tuple[str, str]]:
        """Fields that may hold what is inside, and their keys."""
        fields = type(self).model_fields
        levels = [(name, f.alias or name) for name, f in fields.items() if name.startswith("at_")]
        return [("nodes", "nodes"), *levels]


class InnerDomain(Domain):
    name: Label | None = None


class Change(FileModel):
    """`{at_s: 3600, drain: n0}`: one verb, one node or several."""

    at_ms: Annotated[int, amount(SECOND)] = Field(alias="at_s")
    drain: Names = []
    undrain: Names = []
    leave: Names = []
    join: Names = []

    @model_validator(mode="after")
    def _has_one_verb(self) -> Change:
        if len(self.model_fields_set & CHANGES.keys()) != 1:
            raise ValueError(f"needs one of {', '.join(CHANGES)}")
        return self


class ClusterHeader(BaseModel):
    """What must be known before the tree is read."""

    model_config = ConfigDict(extra="ignore", strict=True)

    levels: Names = list(DEFAULT_LEVELS)
    types: dict[Label, TypeEntry | None] = {}

    @field_validator("levels")
    @classmethod
    def _are_between(cls, levels: list[str]) -> list[str]:
        for level in levels:
            if level in RESERVED_LEVELS or levels.count(level) > 1:
                raise ValueError(
                    f"must name levels between cluster and node, each once, not {level!r}"
                )
        return levels


class WholeCluster(Domain):
    levels: Any = None
    types: Any = None
    links: LinkTable = {}
    changes: list[Change] = []


@cache
def _domain(levels: tuple[str, ...], base: type[Domain]) -> Any:
    """The model of a domain that may hold domains of these levels, outermost first."""
    inner: dict[str, Any] = {
        f"at_{level}": (
            list[_domain(levels[at + 1 :], InnerDomain)] | None,  # type: ignore[misc]
            Field(default=None, alias=f"{level}s"),
        )
        for at, level in enumerate(levels)
    }
    return create_model(base.__name__, __base__=base, **inner)


def cluster_from(raw: object, where: str = "the cluster", lines: Lines | None = None) -> Cluster:
    """The described cluster, or a ConfigError."""
    head = checked(ClusterHeader, raw, where, lines)
    types = {CPU_TYPE: GpuType(CPU_TYPE)} | {
        name: replace(GpuType(name), **(entry.stated() if entry else {}))
        for name, entry in head.types.items()
    }
    kind = _domain(tuple(head.levels), WholeCluster)
    whole = checked(kind, raw, where, lines, {"types": types})
    try:
        levels, specs = _specs(whole, tuple(head.levels), types)
        topology = build(("cluster", *levels, "node", *_island_levels(specs), "gpu"), specs)
    except TopologyError as error:
        raise ConfigError(f"{where}: {error}.") from None
    if not topology.training_gpus:
        raise ConfigError(f"{where} has CPU slots but no GPUs.")
    for level in whole.links:
        if level not in (*topology.levels, *INSIDE_NODE):
            hint = did_you_mean(level, topology.levels)
            raise ConfigError(f"{where}: links: the cluster has no level {level!r}; {hint}")
    topology = replace(topology, links=links_of(whole.links))
    return Cluster(topology, tuple(_changes(whole.changes, topology, where, lines or {})))


def _specs(
    whole: Domain, levels: tuple[str, ...], types: Mapping[str, GpuType]
) -> tuple[tuple[str, ...], list[NodeSpec]]:
    """The levels that the file uses, and its nodes in its order."""
    depth: tuple[str, ...] | None = None
    specs: list[NodeSpec] = []
    numbers: Counter[str] = Counter()
    gpus = 0
    for entry, path, above in _entries(whole, levels, Counter()):
        if depth is not None and above != depth:
            raise TopologyError(
                f"some nodes lie at the depth cluster > {' > '.join((*above, 'node'))}, others at"
                f" cluster > {' > '.join((*depth, 'node'))}; use the same levels in every branch"
            )
        depth = above
        spec = entry.spec(path, types)
        gpus += spec.gpus * entry.count
        if gpus > MOST_GPUS or len(specs) + entry.count > MOST_NODES:
            raise TopologyError(f"it is larger than {MOST_NODES:,} nodes or {MOST_GPUS:,} GPUs")
        if entry.name is not None:
            specs.append(replace(spec, name=entry.name))
            continue
        # Numbering goes on from one rack to the next.
        for _ in range(entry.count):
            specs.append(replace(spec, name=f"{entry.prefix}{numbers[entry.prefix]}"))
            numbers[entry.prefix] += 1
    return depth or ("rack",), specs


def _entries(
    domain: Domain,
    levels: tuple[str, ...],
    counts: Counter[str],
    path: tuple[int, ...] = (0,),
    above: tuple[str, ...] = (),
) -> Iterator[tuple[NodeEntry, tuple[int, ...], tuple[str, ...]]]:
    """Every entry of nodes with its domain at each level, and the names of these levels."""
    for entry in domain.nodes or ():
        yield entry, path if above else (*path, 0), above
    for at, level in enumerate(levels):
        for inner in getattr(domain, f"at_{level}") or ():
            index = counts[level]
            counts[level] += 1
            yield from _entries(inner, levels[at + 1 :], counts, (*path, index), (*above, level))


def _island_levels(specs: list[NodeSpec]) -> tuple[str, ...]:
    """The levels inside a node that any node makes use of."""
    used = {
        "socket": any(spec.sockets > 1 for spec in specs),
        "pcie": any(spec.switches > 1 for spec in specs),
        "island": any(spec.islands > 1 for spec in specs),
    }
    return tuple(level for level in ISLAND_LEVELS if used[level])


def _changes(
    changes: list[Change], topology: Topology, where: str, lines: Lines
) -> Iterator[NodeChange]:
    names = list(topology.node_by_name)
    for at, change in enumerate(changes):
        (verb,) = change.model_fields_set & CHANGES.keys()
        for name in getattr(change, verb):
            node = topology.node_by_name.get(name)
            if node is None:
                place = ("changes", at, verb)
                hint = did_you_mean(name, names, f"the first is {names[0]}, the last {names[-1]}.")
                said = f"{named(place)} names {shown(name)}, which is not a node of the cluster;"
                raise ConfigError(located(f"{said} {hint}", where, line_of(place, lines)))
            yield NodeChange(change.at_ms, CHANGES[verb](node.index))
