"""Requests that cannot be fulfilled: each error is one sentence for the user."""

from __future__ import annotations


class RequestError(Exception):
    """Something that cannot be done: one sentence for the user; nothing has changed."""


class BadStart(RequestError):
    """A manager cannot be started like this: the command line must say otherwise."""


class NotFound(RequestError):
    """There is no such job, queue or node."""


class Conflict(RequestError):
    """It cannot be done to this job now: it has ended, or an idempotency key was used for another."""


class TooMany(RequestError):
    """There are as many jobs as this manager takes: later there may be room."""


class WorkWouldBeLost(Conflict):
    """It would end programs that can be neither suspended in memory nor told to save."""


class Unavailable(RequestError):
    """Not now: a standby, or a store that cannot be written. Try again later."""
