"""Asks the manager, as the person who looks at the page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Any

import httpx

from trainmaster.api.headers import SESSION_HEADER

ROOT = "/api/v1"
ANSWER_S = 30.0


class Refused(Exception):
    """The manager's answer to what it does not do: one sentence."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code


class ApiClient:
    """Requests of one person, with the session that shows who that is."""

    def __init__(self, connections: httpx.AsyncClient, session: str) -> None:
        self._connections = connections
        self.session = session
        self._shown = {SESSION_HEADER: session}

    async def get(self, path: str, **query: Any) -> Any:
        return await self.send("GET", path, **query)

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        yaml: str | None = None,
        key: str | None = None,
        **query: Any,
    ) -> Any:
        """The answer's JSON, or its text where it is something else; `key` makes it happen once."""
        headers = {} if yaml is None else {"Content-Type": "application/yaml"}
        headers |= {} if key is None else {"Idempotency-Key": key}
        content = None if yaml is None else yaml.encode("utf-8", "replace")
        answer = await self._answer(method, path, body, query, headers, content)
        if answer.headers.get("content-type", "").startswith("application/json"):
            return answer.json()
        return answer.text

    async def content(self, path: str) -> bytes:
        """A file."""
        return (await self._answer("GET", path, None, {})).content

    async def _answer(
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, Any],
        headers: Mapping[str, str] = MappingProxyType({}),
        content: bytes | None = None,
    ) -> httpx.Response:
        asked = {name: value for name, value in query.items() if value is not None}
        try:
            answer = await self._connections.request(
                method,
                ROOT + path,
                params=asked,
                json=body,
                content=content,
                headers={**self._shown, **headers},
            )
        except httpx.HTTPError as error:
            raise Refused(0, "away", f"The manager does not answer: {error}") from None
        if answer.is_error:
            raise _refused(answer.status_code, answer.text)
        return answer

    async def beginning(self, path: str, most: int, **query: Any) -> str:
        """The first bytes of a long text."""
        asking = self._connections.stream(
            "GET", ROOT + path, params=query, headers=self._shown, timeout=ANSWER_S
        )
        read = b""
        try:
            async with asking as answer:
                if answer.is_error:
                    raise _refused(answer.status_code, (await answer.aread()).decode())
                async for piece in answer.aiter_bytes():
                    read += piece
                    if len(read) >= most:
                        break
        except httpx.HTTPError as error:
            raise Refused(0, "away", f"The manager does not answer: {error}") from None
        return read[:most].decode("utf-8", "replace")

    async def events(self, path: str, **query: Any) -> AsyncIterator[tuple[str, Any]]:
        """Server-sent events, each with its name, until the manager ends them."""
        asking = self._connections.stream(
            "GET", ROOT + path, params=query, headers=self._shown, timeout=None
        )
        async with asking as answer:
            if answer.is_error:
                raise _refused(answer.status_code, (await answer.aread()).decode())
            name = ""
            async for line in answer.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    yield name, json.loads(value)


def _refused(status: int, text: str) -> Refused:
    try:
        said = json.loads(text)["error"]
        return Refused(status, said["code"], said["sentence"])
    except (ValueError, KeyError, TypeError):
        return Refused(status, "", f"The manager answered with status {status}.")
