"""Time and memory of each operator of a graph, forward and backward, measured one by one."""

from __future__ import annotations

import operator
import time
from collections import Counter
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

NANOSECOND = 1e-9
LONG_S = 0.5
"""An operator that takes longer is measured once."""


class Measured:
    """What running one operator showed."""

    def __init__(self, run: Any, given: Any, rounds: int) -> None:
        """Forward and backward, the fastest of some rounds after one that loads what it needs."""
        taken, inputs, found = [], given, None
        for _ in range(rounds + 1):
            inputs = tree_map(_leaf, given)
            begin = _now()
            found = run(*inputs)
            _backward(found, inputs)
            taken.append(_now() - begin)
            if taken[0] > LONG_S:
                break
        self.time_ns = round(min(taken[1:] or taken) / NANOSECOND)
        self.result = tree_map(_detached, found)
        held = {each.untyped_storage().data_ptr() for each in tensors(inputs)}
        made = [each for each in tensors(found) if each.untyped_storage().data_ptr() not in held]
        self.output = sum(map(size, made))
        """Bytes of its own: views have none."""
        differentiable = (each for each in (*tensors(inputs), *made) if each.requires_grad)
        self.gradients = sum(map(size, differentiable))


class Profiler(fx.Interpreter):
    """Runs the graph once, and each operator as often as it takes."""

    def __init__(self, module: fx.GraphModule, rounds: int) -> None:
        super().__init__(module)
        self._rounds = rounds
        self.measured: dict[str, Measured] = {}
        self.sizes: dict[str, int] = {}
        """Bytes of what each node gives to its readers."""
        self.tensors: dict[str, Any] = {}
        """Parameters and buffers by the name of the node that reads them."""

    def run_node(self, n: fx.Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if n.op in ("placeholder", "get_attr", "output"):
            found = getattr(self, n.op)(n.target, args, kwargs)
            if n.op == "get_attr":
                self.tensors[n.name] = found
        else:
            run = getattr(self, n.op)
            each = Measured(lambda *given: run(n.target, *given), (args, kwargs), self._rounds)
            self.measured[n.name], found = each, each.result
            if n.op == "call_module":
                self.tensors[n.name] = self.fetch_attr(str(n.target))
        self.sizes[n.name] = sum(size(each) for each in tensors(found))
        return found


def _backward(found: Any, inputs: Any) -> None:
    ends = [each for each in tensors(found) if each.requires_grad and each.is_floating_point()]
    starts = [each for each in tensors(inputs) if each.requires_grad]
    if ends and starts:
        ones = [torch.ones_like(each) for each in ends]
        torch.autograd.grad(ends, starts, ones, allow_unused=True)


def _leaf(value: Any) -> Any:
    """A parameter stays what it is; an activation begins a graph of its own."""
    if not torch.is_tensor(value) or isinstance(value, torch.nn.Parameter):
        return value
    # A copy, which operators in place may change.
    made = value.detach().clone()
    return made.requires_grad_() if made.is_floating_point() and value.requires_grad else made


def _detached(value: Any) -> Any:
    if not torch.is_tensor(value):
        return value
    made = value.detach()
    return made.requires_grad_(value.requires_grad and made.is_floating_point())


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def tensors(value: Any) -> list[Any]:
    return [each for each in tree_leaves(value) if torch.is_tensor(each)]


def size(value: Any) -> int:
    return int(value.numel() * value.element_size())


def profiled(
    module: fx.GraphModule, inputs: tuple[Any, ...], rounds: int, copies: int
) -> dict[str, Any]:
    """Operators and edges, as the splitter reads them. `copies` of each weight stay: itself, its gradient,
    and what the optimizer keeps of it."""
    profiler = Profiler(module, rounds)
    profiler.run(*inputs)
    nodes = [each for each in module.graph.nodes if each.op not in ("get_attr", "output")]
    kept = dict.fromkeys((each.name for each in nodes), 0)
    together = Together(kept)
    owned: Counter[str] = Counter()
    owner: dict[int, str] = {}
    """Of each tensor of the model: the first operator that reads it has its bytes."""
    for node in nodes:
        for held in _held(node, profiler):
            key = id(held)
            if key not in owner:
                owner[key] = node.name
                weights = copies if held.requires_grad else 1
                kept[node.name] += size(held) * weights
                owned[node.name] += size(held) if held.requires_grad else 0
            together.join(owner[key], node.name)
        if node.target is operator.getitem:
            together.join(node.all_input_nodes[0].name, node.name)
    operators, groups = [], together.groups()
    for node in nodes:
        found = profiler.measured.get(node.name)
        operators.append(
            {
                "name": node.name,
                "time": 0 if found is None else found.time_ns,
                "temporary": 0 if found is None else found.gradients,
                "persistent": kept[node.name] + (0 if found is None else found.output),
                "parameters": owned.get(node.name, 0),
                "output": profiler.sizes[node.name],
                "group": groups.get(node.name),
                "layer": _layer(node),
            }
        )
    edges = [
        {"source": source.name, "target": node.name, "size": profiler.sizes[source.name]}
        for node in nodes
        for source in node.all_input_nodes
        if source.name in kept
    ]
    return {"operators": operators, "edges": edges}


def _held(node: fx.Node, profiler: Profiler) -> list[Any]:
    """Parameters and buffers that a node reads."""
    if node.op == "call_module":
        module = profiler.tensors[node.name]
        return [*module.parameters(), *module.buffers()]
    names = (each.name for each in node.all_input_nodes if each.op == "get_attr")
    return [each for name in names for each in tensors(profiler.tensors[name])]


def _layer(node: fx.Node) -> str:
    """The module of the model that a node is part of."""
    stack = node.meta.get("nn_module_stack") or {}
    named = [str(each[0]) for each in stack.values()]
    return named[-1].removeprefix("L__self__.") if named else ""


class Together:
    """Which operators must be on one device."""

    def __init__(self, names: Any) -> None:
        self._root = {name: name for name in names}

    def find(self, name: str) -> str:
        while self._root[name] != name:
            self._root[name] = self._root[self._root[name]]
            name = self._root[name]
        return name

    def join(self, one: str, other: str) -> None:
        self._root[self.find(other)] = self.find(one)

    def groups(self) -> dict[str, str]:
        """The name of the group of each that is not alone."""
        members = Counter(map(self.find, self._root))
        return {name: self.find(name) for name in self._root if members[self.find(name)] > 1}
