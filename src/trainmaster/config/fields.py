"""Values out of a mapping that a user wrote: every mistake is one sentence that names its key."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from trainmaster.text.suggest import did_you_mean

MOST = 1e15
"""No number in a description exceeds this: beyond it there is only a typing error."""


class Fields:
    """One mapping of a description and where it stands, so that a bad value can be named."""

    def __init__(
        self, value: object, where: str, error: type[ValueError], known: Collection[str] = ()
    ) -> None:
        self.where = where
        self.error = error
        if not isinstance(value, Mapping):
            raise error(f"{where} must be a mapping of keys to values, not {_shown(value)}.")
        self.values: Mapping[str, object] = {str(key): each for key, each in value.items()}
        if known:
            self.only(known)

    def only(self, known: Collection[str]) -> None:
        for key in self.values:
            if key not in known:
                raise self.error(f"{self.where} has no key {key!r}; {did_you_mean(key, known)}")

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def at(self, key: str) -> str:
        """Where a value of this mapping stands."""
        return f"{self.where}.{key}"

    def require(self, *keys: str) -> None:
        for key in keys:
            if key not in self.values:
                raise self.error(f"{self.where} needs a {key}.")

    def section(self, key: str, known: Collection[str] = ()) -> Fields:
        return Fields(self.values.get(key, {}), self.at(key), self.error, known)

    def sections(self, key: str, known: Collection[str] = ()) -> Iterator[Fields]:
        """The mappings of a list."""
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise self.error(f"{self.at(key)} must be a list, not {_shown(value)}.")
        for number, each in enumerate(value, start=1):
            yield Fields(each, f"{self.at(key)}[{number}]", self.error, known)

    def text(self, key: str) -> str | None:
        """A name; a number is one too, because YAML reads an unquoted 3090 so."""
        if key not in self.values:
            return None
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
            raise self.error(f"{self.at(key)} must be a name, not {_shown(value)}.")
        return str(value).strip()

    def texts(self, key: str) -> list[str]:
        """One name, or a list of them."""
        value = self.values.get(key, [])
        each = value if isinstance(value, list) else [value]
        names = [Fields({key: item}, self.where, self.error).text(key) for item in each]
        return [name for name in names if name is not None]

    def whole(self, key: str, least: int, most: float = MOST) -> int | None:
        if key not in self.values:
            return None
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            limit = f" and at most {most:,.0f}" if most < MOST else ""
            raise self.error(
                f"{self.at(key)} must be a whole number of at least {least}{limit},"
                f" not {_shown(value)}."
            )
        return value

    def number(self, key: str, *, positive: bool = False) -> float | None:
        if key not in self.values:
            return None
        value = self.values[key]
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value <= MOST
            or (positive and value == 0)
        ):
            bound = "more than 0" if positive else "at least 0"
            raise self.error(f"{self.at(key)} must be a number of {bound}, not {_shown(value)}.")
        return float(value)


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
