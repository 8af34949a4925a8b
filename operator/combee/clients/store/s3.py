"""What a Secret's keys mean to an S3 client, and what the client's errors mean. Imports no S3 package."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from combee.clients.reach import checked_sockets
from combee.errors import UserError
from combee.settings import S3Settings, read_settings

KEY_ID, KEY = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
ENDPOINT = "AWS_ENDPOINT_URL"
REQUIRED_KEYS = (KEY_ID, KEY)

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
"""Classes of botocore, aiohttp and fsspec by name, since they are installed only with S3."""


def s3_options(secret: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return fsspec's options for ``s3://``: deadlines, retries, what may be asked, and the credentials of a
    given Secret. An endpoint that the environment names, and the Secret does not, is looked at as a Secret's.

    Without a Secret the client looks for credentials where AWS clients do (environment, web identity).
    Raises UserError that names the missing or wrong key, and never a value; and AddressNotAllowedError.
    """
    url = _checked_endpoint((secret or {}).get(ENDPOINT, "").strip(), ENDPOINT, "secretRef")
    options: dict[str, Any] = {
        "config_kwargs": {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": {"mode": "standard", "max_attempts": TRIES},
        }
    }
    if connections := checked_sockets(url or _of_environment()):
        options["config_kwargs"]["connector_args"] = connections
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
    if url:
        options["endpoint_url"] = url
    return options


def _of_environment() -> str:
    """Return the endpoint that the client takes from the environment; empty where it names none."""
    settings = read_settings(S3Settings, "combee")
    name, url = (f"{ENDPOINT}_S3", settings.of_s3) if settings.of_s3 else (ENDPOINT, settings.of_all)
    return _checked_endpoint(url, name, "the environment")


def _checked_endpoint(url: str, name: str, where: str) -> str:
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or "@" in url:
        raise UserError(
            f"{name} is not an http:// or https:// address without credentials",
            where=where,
            fix="Write it like https://minio.example.com:9000",
        )
    return url


def is_passing(error: BaseException) -> bool:
    """Return whether the same request may succeed later, as after a timeout, a broken connection, a 5xx
    or a conflict."""
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    if isinstance(error, OSError) and error.errno in _PASSING_ERRNOS:
        return True
    return any(kind.__name__ in _PASSING_NAMES for kind in type(error).__mro__)


def is_without_credentials(error: BaseException) -> bool:
    """Return whether the client found no credentials to sign with."""
    return type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError")


def is_there_already(error: BaseException) -> bool:
    """Return whether a conditional write lost because the object was written before."""
    if isinstance(error, FileExistsError):
        return True
    cause = getattr(error, "__cause__", None)
    response = getattr(error, "response", None) or getattr(cause, "response", None) or {}
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return code in ("PreconditionFailed", "412")
