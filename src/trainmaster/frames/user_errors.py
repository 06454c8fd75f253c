"""Errors whose text is a sentence for the user, and the same as ValueError for callers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainmaster.errors import BadInput
from trainmaster.text.formatting import as_sentence


def errors_with_sentences() -> tuple[type[Exception], ...]:
    from trainmaster.catalog import CatalogError
    from trainmaster.config.options import OptionError
    from trainmaster.config.validation import ConfigError
    from trainmaster.evaluation.suite import SuiteError
    from trainmaster.model.topology import TopologyError
    from trainmaster.model.trace import TraceError

    return TraceError, TopologyError, ConfigError, OptionError, CatalogError, SuiteError


@contextmanager
def as_value_errors() -> Iterator[None]:
    """Bad input is a ValueError, with the sentence that the command line writes."""
    kinds: tuple[type[Exception], ...] = (BadInput, *errors_with_sentences())
    try:
        yield
    except kinds as error:
        raise ValueError(as_sentence(str(error.args[0]))) from None
