"""The ways in which a request to an endpoint can fail; ``refusals`` says what they mean."""

from __future__ import annotations

from typing import Any

import httpx2

from combee.clients.answers import EncodedError, TooLongError
from combee.jsonread import read_json

MOST_MESSAGE_BYTES = 64 << 10
"""How much is read of what a server says to a refusal."""


class NoAnswerError(Exception):
    """The endpoint was not reached, or closed the connection. ``__cause__`` holds the client's error."""

    @property
    def never_sent(self) -> bool:
        """Whether the endpoint cannot have seen the request."""
        return isinstance(self.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout)

    @property
    def reason(self) -> str:
        """One word for the records."""
        if isinstance(self.__cause__, EncodedError):
            return "encoded"
        return "long" if isinstance(self.__cause__, TooLongError) else "reset"


class NotInTimeError(NoAnswerError):
    """The endpoint gave no connection, or no answer, within the client's own limit."""

    @property
    def reason(self) -> str:
        """One word for the records."""
        return "connect"


class StatusError(Exception):
    """The endpoint answered with a status other than 2xx.

    ``code``, ``type`` and ``param`` come from the body's ``error`` object and are None where it has none.
    ``message`` holds the whole body, since servers explain an error in different places, as UTF-8, whatever
    character set it names.
    """

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.status_code = response.status_code
        body = _body(response)
        self.message = f"Error code: {self.status_code}" + (f" - {body}" if body else "")
        details = body.get("error", body) if isinstance(body, dict) else None
        fields: dict[str, Any] = details if isinstance(details, dict) else {}
        self.code, self.type, self.param = (fields.get(name) for name in ("code", "type", "param"))
        super().__init__(self.message)


def _body(response: httpx2.Response) -> Any:
    text = response.content[:MOST_MESSAGE_BYTES].decode(errors="replace").strip()
    try:
        return read_json(text)
    except ValueError:
        return text
