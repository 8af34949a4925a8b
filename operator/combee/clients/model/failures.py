"""How a request to an endpoint can fail, before anybody judges what that means."""

from __future__ import annotations

import json
from typing import Any

import httpx2


class NoAnswerError(Exception):
    """The endpoint was not reached, or broke off. ``__cause__`` says how."""


class NotInTimeError(NoAnswerError):
    """No connection, or no answer, within the client's own limit."""


class StatusError(Exception):
    """The endpoint answered with a status other than 2xx.

    ``code``, ``type`` and ``param`` are those of the body's ``error`` object, None where it has none;
    ``message`` is the whole body, so that no server's way of saying why is lost.
    """

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.status_code = response.status_code
        body = _body(response)
        self.message = f"Error code: {self.status_code}" + (f" - {body}" if body else "")
        said = body.get("error", body) if isinstance(body, dict) else None
        fields: dict[str, Any] = said if isinstance(said, dict) else {}
        self.code, self.type, self.param = (fields.get(name) for name in ("code", "type", "param"))
        super().__init__(self.message)


def _body(response: httpx2.Response) -> Any:
    text = response.text.strip()
    try:
        return json.loads(text)
    except ValueError:
        return text
