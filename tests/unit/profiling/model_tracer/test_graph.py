"""Graphs of the models that people train: what is captured, together, and counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from trainmaster.profiling.model_tracer import graph_module, layers, operator_profile

FLOAT = 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = (
            nn.Conv2d(4, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.Conv2d(4, 4, 1),
        )

    def forward(self, x: Any) -> Any:
        return torch.relu(x + self.two(torch.relu(self.norm(self.one(x)))))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(self.words(x)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.cells, self.head = nn.Embedding(50, 8), nn.LSTM(8, 8, 2), nn.Linear(8, 50)

    def forward(self, x: Any) -> Any:
        return self.head(self.cells(self.words(x))[0])


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = self.one(x)
        return self.two(x * 2 if x.sum().item() > 0 else x)


def profiled(model: Any, *inputs: Any) -> dict[str, Any]:
    captured, by = graph_module.captured(model, inputs)
    assert by == "torch.export"
    made = operator_profile.profiled(captured, inputs, rounds=1, copies=4)
    names = [each["name"] for each in made["operators"]]
    assert all(each["source"] in names and each["target"] in names for each in made["edges"])
    assert all(each["time"] > 0 for each in made["operators"] if each["layer"])
    return made


IMAGES, WORDS = torch.randn(2, 4, 6, 6), torch.zeros(2, 5, dtype=torch.int64)


@pytest.mark.parametrize(
    ("make", "inputs"),
    [(Block, IMAGES), (Tied, WORDS), (Recurrent, WORDS)],
    ids=["cnn", "tied", "rnn"],
)
def test_every_weight_counts_once_with_its_gradient_and_states(
    make: Callable[[], Any], inputs: Any
) -> None:
    model = make()
    made = profiled(model, inputs)
    weights = sum(FLOAT * each.numel() for each in model.parameters())
    assert sum(each["parameters"] for each in made["operators"]) == weights
    assert sum(each["persistent"] for each in made["operators"]) >= 4 * weights


def test_a_skip_is_an_edge_of_its_own() -> None:
    made = profiled(Block(), IMAGES)
    (add,) = (
        each["name"]
        for each in made["operators"]
        if each["name"].startswith("add") and each["layer"] == ""
    )
    read = [each for each in made["edges"] if each["target"] == add]
    assert len(read) == 2
    assert {each["size"] for each in read} == {IMAGES.numel() * FLOAT}


def test_operators_that_share_a_weight_are_together() -> None:
    made = profiled(Tied(), WORDS)
    shared = {each["layer"] for each in made["operators"] if each["group"] is not None}
    assert shared == {"words", "head"}


def test_the_results_of_one_operator_are_with_it() -> None:
    made = profiled(Recurrent(), WORDS)
    groups = {each["name"]: each["group"] for each in made["operators"]}
    assert groups["getitem"] == groups["lstm"] is not None


def test_views_have_no_bytes_of_their_own() -> None:
    made = profiled(nn.Sequential(nn.Linear(8, 8), nn.Flatten(0)), torch.randn(3, 8))
    sizes = {each["name"]: each["persistent"] for each in made["operators"]}
    assert sizes["flatten"] == 0
    assert sizes["linear"] > 0


def test_what_has_no_graph_is_taken_layer_by_layer() -> None:
    model, inputs = Branching(), (torch.randn(3, 8),)
    with pytest.raises(graph_module.NotCaptured, match=r"torch.export: .*; torch.fx: "):
        graph_module.captured(model, inputs)
    made = layers.profiled(model, inputs, rounds=1, copies=2)
    assert [each["name"] for each in made["operators"]] == ["one", "two"]
    assert [(each["source"], each["target"]) for each in made["edges"]] == [("one", "two")]
    assert made["operators"][0]["parameters"] == FLOAT * 72
