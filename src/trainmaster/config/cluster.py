"""A cluster from a user's description: racks or deeper trees of nodes, device types, planned changes.

`docs/simulator.md` shows the description by example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from trainmaster.config.fields import Fields
from trainmaster.model.events import (
    NodeChange,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    NodeUndrained,
)
from trainmaster.model.topology import (
    CPU_TYPE,
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

NODE_KEYS = (
    *("name", "count", "prefix", "gpus", "cpu_slots"),
    *("type", "sockets", "pcie_switches", "islands", "cpus", "memory_gib"),
)
ISLAND_KEYS = ("sockets", "pcie_switches", "islands")
"""What a node may say of its inside, outermost first: one key for each of `ISLAND_LEVELS`."""
TYPE_KEYS = ("memory_gib", "speed", "price_per_hour")
MOST_NODES = 100_000


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a description says: the tree, and what is planned to happen to its nodes."""

    topology: Topology
    changes: tuple[NodeChange, ...] = ()


def cluster_from(description: Mapping[str, object], where: str = "the cluster") -> Cluster:
    """The described cluster, or a TopologyError that names the key."""
    top = Fields(description, where, TopologyError)
    outer = _levels(top)
    top.only(("levels", "types", "changes", "nodes", *(f"{level}s" for level in outer)))
    tree = Tree(_types(top), outer)
    tree.walk(top, (0,), outer)
    levels = ("cluster", *(tree.named or ("rack",)), "node")
    try:
        topology = build((*levels, *_island_levels(tree.specs), "gpu"), tree.specs)
    except TopologyError as error:
        raise TopologyError(f"{where}: {error}.") from None
    if not topology.training_gpus:
        raise TopologyError(f"{where} has CPU slots but no GPUs.")
    return Cluster(topology, tuple(_changes(top, topology)))


def _island_levels(specs: list[NodeSpec]) -> tuple[str, ...]:
    """The levels inside a node that any node makes use of."""
    used = {
        "socket": any(spec.sockets > 1 for spec in specs),
        "pcie": any(spec.switches > 1 for spec in specs),
        "island": any(spec.islands > 1 for spec in specs),
    }
    return tuple(level for level in ISLAND_LEVELS if used[level])


def _levels(top: Fields) -> tuple[str, ...]:
    """The names of the levels that may lie between cluster and node, outermost first."""
    if "levels" not in top:
        return DEFAULT_LEVELS
    named = tuple(top.texts("levels"))
    for level in named:
        if level in RESERVED_LEVELS or named.count(level) > 1:
            raise TopologyError(
                f"{top.at('levels')} must name levels between cluster and node,"
                f" each once, not {level!r}."
            )
    return named


def _types(top: Fields) -> Mapping[str, GpuType]:
    section = top.section("types")
    types = {CPU_TYPE: GpuType(CPU_TYPE)}
    for name in section.values:
        said = section.section(name, TYPE_KEYS) if section.values[name] is not None else None
        types[name] = _type(name, said) if said is not None else GpuType(name)
    return types


def _type(name: str, said: Fields) -> GpuType:
    kind = GpuType(name)
    memory, speed = said.number("memory_gib", positive=True), said.number("speed", positive=True)
    price = said.number("price_per_hour")
    return GpuType(
        name=name,
        memory=kind.memory if memory is None else round(memory * GIB),
        speed_ppm=kind.speed_ppm if speed is None else max(1, round(speed * NOMINAL)),
        price_per_hour=kind.price_per_hour if price is None else price,
    )


@dataclass(slots=True)
class Tree:
    """The nodes found on a walk down the description, in its order."""

    types: Mapping[str, GpuType]
    outer: tuple[str, ...]
    specs: list[NodeSpec] = field(default_factory=list)
    named: tuple[str, ...] | None = None
    """Levels between cluster and node, once the first node has told; every branch must agree."""
    _domains: dict[str, int] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    """Nodes so far by prefix: numbering goes on from one rack to the next."""
    _gpus: int = 0

    def walk(
        self,
        here: Fields,
        path: tuple[int, ...],
        below: tuple[str, ...],
        above: tuple[str, ...] = (),
    ) -> None:
        """Take the nodes of a domain, or those of the domains in it."""
        inner = [key for key in ("nodes", *(f"{level}s" for level in below)) if key in here]
        if len(inner) != 1:
            choices = " or ".join(("nodes", *(f"{level}s" for level in reversed(below))))
            said = f"either {choices}, not both" if inner else choices
            raise TopologyError(f"{here.where} needs {said}.")
        if inner == ["nodes"]:
            self._take_nodes(here, path, above)
            return
        level = inner[0].removesuffix("s")
        deeper = below[below.index(level) + 1 :]
        keys = ("name", "nodes", *(f"{each}s" for each in deeper))
        for domain in here.sections(inner[0], keys):
            domain.text("name")
            index = self._domains.get(level, 0)
            self._domains[level] = index + 1
            self.walk(domain, (*path, index), deeper, (*above, level))

    def _take_nodes(self, here: Fields, path: tuple[int, ...], above: tuple[str, ...]) -> None:
        if self.named is not None and above != self.named:
            raise TopologyError(
                f"{here.where} lies at the depth cluster > {' > '.join((*above, 'node'))}, others at"
                f" cluster > {' > '.join((*self.named, 'node'))}; use the same levels in every branch."
            )
        self.named = above
        path = path if above else (*path, 0)
        if isinstance(here.values["nodes"], Mapping):
            groups = iter([here.section("nodes", NODE_KEYS)])
        else:
            groups = here.sections("nodes", NODE_KEYS)
        for group in groups:
            self._take_group(group, path)

    def _take_group(self, group: Fields, path: tuple[int, ...]) -> None:
        name, prefix = group.text("name"), group.text("prefix")
        count = group.whole("count", least=1, most=MOST_NODES)
        if name is not None and (count is not None or prefix is not None):
            raise TopologyError(
                f"{group.where} has a name; count and prefix are for nameless nodes."
            )
        spec = replace(self._spec(group), path=path)
        self._gpus += spec.gpus * (count or 1)
        if self._gpus > MOST_GPUS or len(self.specs) + (count or 1) > MOST_NODES:
            raise TopologyError(
                f"{group.where} makes the cluster larger than {MOST_NODES:,} nodes"
                f" or {MOST_GPUS:,} GPUs."
            )
        if name is not None:
            self.specs.append(replace(spec, name=name))
            return
        prefix = prefix or "n"
        first = self._numbers.get(prefix, 0)
        self._numbers[prefix] = first + (count or 1)
        for number in range(first, first + (count or 1)):
            self.specs.append(replace(spec, name=f"{prefix}{number}"))

    def _spec(self, group: Fields) -> NodeSpec:
        gpus, slots = group.whole("gpus", 0, MOST_GPUS), group.whole("cpu_slots", 1, MOST_GPUS)
        if (gpus is None) == (slots is None):
            raise TopologyError(f"{group.where} needs either gpus or cpu_slots.")
        cpus, memory = group.number("cpus"), group.number("memory_gib")
        host = None if memory is None else round(memory * GIB)
        if slots is not None:
            if any(key in group for key in ("type", *ISLAND_KEYS)):
                raise TopologyError(
                    f"{group.where} has CPU slots; they have no type and no islands."
                )
            cores = slots * WHOLE if cpus is None else round(cpus * WHOLE)
            return NodeSpec("", slots, (), self.types[CPU_TYPE], cores, host)
        assert gpus is not None
        cores_or_none = None if cpus is None else round(cpus * WHOLE)
        sockets, switches, islands = self._islands(group, gpus)
        kind = self._type_of(group)
        return NodeSpec("", gpus, (), kind, cores_or_none, host, islands, sockets, switches)

    def _islands(self, group: Fields, gpus: int) -> list[int]:
        """How many of each kind the node has, those inside others a multiple of them."""
        counts, outer, named = [], 1, ""
        for key in ISLAND_KEYS:
            count = group.whole(key, 1, max(1, gpus))
            if count is not None and count % outer:
                raise TopologyError(
                    f"{group.at(key)} must be a multiple of {named}, {outer}, not {count}."
                )
            if count is not None:
                outer, named = count, key
            counts.append(count or 1)
        return counts

    def _type_of(self, group: Fields) -> GpuType:
        name = group.text("type")
        if name is None:
            return GpuType()
        if name not in self.types or name == CPU_TYPE:
            known = [each for each in self.types if each != CPU_TYPE]
            raise TopologyError(
                f"{group.at('type')} is {name!r}, which is not among types;"
                f" {did_you_mean(name, known)}"
            )
        return self.types[name]


def _changes(top: Fields, topology: Topology) -> Iterator[NodeChange]:
    """`{at_s: 3600, drain: n0}`: one verb, one node or several."""
    for change in top.sections("changes", ("at_s", *CHANGES)):
        change.require("at_s")
        at_s = change.number("at_s")
        verbs = [verb for verb in CHANGES if verb in change]
        if len(verbs) != 1:
            raise TopologyError(f"{change.where} needs one of {', '.join(CHANGES)}.")
        for name in change.texts(verbs[0]):
            node = topology.node_by_name.get(name)
            if node is None:
                raise TopologyError(
                    f"{change.at(verbs[0])} names {name!r}, which is no node of the cluster;"
                    f" {_near_node(name, topology)}"
                )
            assert at_s is not None
            yield NodeChange(round(at_s * SECOND), CHANGES[verbs[0]](node.index))


def _near_node(name: str, topology: Topology) -> str:
    names = list(topology.node_by_name)
    return did_you_mean(name, names, f"the first is {names[0]}, the last {names[-1]}.")
