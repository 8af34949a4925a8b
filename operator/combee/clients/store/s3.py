"""What a Secret's keys mean to an S3 client, and what its errors mean to us. No package of S3 is imported here."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from combee.errors import UserError

KEY_ID, KEY = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
REQUIRED_KEYS = (KEY_ID, KEY)
OPTIONAL_KEYS = ("AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_REGION")

CONNECT_SECONDS = 10
READ_SECONDS = 30
TRIES = 4

_PASSING_ERRNOS = {errno.EBUSY, errno.EREMOTEIO, errno.ETIMEDOUT, errno.ECONNRESET}
_PASSING_NAMES = {
    "HTTPClientError",
    "ConnectionError",
    "FSTimeoutError",
    "IncompleteReadError",
    "ResponseParserError",
    "ClientPayloadError",
}
"""Classes of botocore, aiohttp and fsspec by name: without S3 none of them is installed."""


def s3_options(secret: Mapping[str, str] | None = None) -> dict[str, Any]:
    """fsspec's options for ``s3://``: deadlines, retries and, where a Secret is given, its credentials.

    Without one the client looks for credentials where AWS clients do (environment, web identity).
    UserError names the key that is missing or wrong, never a value.
    """
    options: dict[str, Any] = {
        "config_kwargs": {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": {"mode": "standard", "max_attempts": TRIES},
        }
    }
    if not secret:
        return options
    for name in REQUIRED_KEYS:
        if not secret.get(name):
            raise UserError(
                f"the Secret of an s3:// address has no {name}", where="secretRef", fix=f"Add the key {name}"
            )
    options |= {"key": secret[KEY_ID].strip(), "secret": secret[KEY].strip()}
    if token := secret.get("AWS_SESSION_TOKEN", "").strip():
        options["token"] = token
    if region := secret.get("AWS_REGION", "").strip():
        options["client_kwargs"] = {"region_name": region}
    if url := secret.get("AWS_ENDPOINT_URL", "").strip():
        options["endpoint_url"] = _checked_endpoint(url)
    return options


def _checked_endpoint(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or "@" in url:
        raise UserError(
            "AWS_ENDPOINT_URL is not an http:// or https:// address without credentials",
            where="secretRef",
            fix="Write it like https://minio.example.com:9000",
        )
    return url


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed later: a timeout, a broken connection, a 5xx, a conflict."""
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    if isinstance(error, OSError) and error.errno in _PASSING_ERRNOS:
        return True
    return any(kind.__name__ in _PASSING_NAMES for kind in type(error).__mro__)


def is_without_credentials(error: BaseException) -> bool:
    """Whether the client found no credentials to sign with."""
    return type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError")


def is_there_already(error: BaseException) -> bool:
    """Whether a conditional write lost: somebody wrote the object first."""
    if isinstance(error, FileExistsError):
        return True
    cause = getattr(error, "__cause__", None)
    response = getattr(error, "response", None) or getattr(cause, "response", None) or {}
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return code in ("PreconditionFailed", "412")
