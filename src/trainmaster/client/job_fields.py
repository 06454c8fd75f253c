"""Which keywords of a submission are fields of the job, and which are arguments of the function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from trainmaster.text.suggest import did_you_mean

OWN = ("command", "array")
"""Fields that a client sets itself."""


def job_fields() -> frozenset[str]:
    from trainmaster.config.job_file import JobFile  # it takes long to import

    return frozenset(JobFile.model_fields) - {*OWN}


def split(
    function: Callable[..., Any], keywords: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of the job and the arguments of the function among these keywords."""
    fields = job_fields()
    both = sorted(fields & keywords.keys() & _parameters(function))
    if both:
        name = both[0]
        raise ValueError(
            f"`{name}` is a field of the job and a parameter of {name_of(function)}: give the function's"
            f" by functools.partial(…, {name}=…), the job's by client.using({name}=…)."
        )
    job = {name: value for name, value in keywords.items() if name in fields}
    return job, {name: value for name, value in keywords.items() if name not in fields}


def check_call(
    function: Callable[..., Any], positional: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    """TypeError where the function cannot be called so: before a job waits for GPUs."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built in, without a signature
        return
    try:
        signature.bind(*positional, **named)
    except TypeError as error:
        unknown = [each for each in named if each not in signature.parameters]
        hint = did_you_mean(unknown[0], sorted(job_fields()), "") if unknown else ""
        beside = f" ({hint})" if hint else ""
        raise TypeError(f"{name_of(function)}: {error}{beside}") from None


def check_fields(fields: Mapping[str, Any]) -> None:
    """ValueError where a field of a job is unknown, by the words of the job file."""
    known = job_fields()
    for name in fields:
        if name not in known:
            raise ValueError(f"a job has no field {name!r}; {did_you_mean(name, sorted(known))}")


def name_of(function: Callable[..., Any]) -> str:
    """What a job of it is called."""
    inner = function.func if isinstance(function, functools.partial) else function
    name = getattr(inner, "__name__", type(inner).__name__)
    return str(name) if name != "<lambda>" else "lambda"


def _parameters(function: Callable[..., Any]) -> set[str]:
    """Parameters that can be given by their name and have no value yet."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set()
    bound = function.keywords if isinstance(function, functools.partial) else {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {each.name for each in parameters if each.kind in named} - bound.keys()
