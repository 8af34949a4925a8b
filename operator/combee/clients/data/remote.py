"""Remote data: downloaded whole, within limits of size and time, and then read as a file.

It is downloaded whole so that a file which changes meanwhile is never read as half old and half new.
An address is hostile input until it is parsed: only listed schemes are allowed, nothing is chained, and
a redirect of an ``https`` server must lead to ``https`` again, where it gets no credentials.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from combee.api.common import REMOTE_SCHEMES, uri_scheme
from combee.clients.store.s3 import is_passing, is_without_credentials, s3_options
from combee.errors import CombeeError, DataError, NotAvailableError, TransientError

if TYPE_CHECKING:
    import httpx2

MAX_BYTES = 1 << 30
DEADLINE_SECONDS = 900.0
_QUIET_SECONDS = 60.0
"""The longest time without a byte."""
_REDIRECTS = 5
_PIECE = 1 << 20
HTTPS_TOKEN = "TOKEN"  # noqa: S105 - the name of a Secret's key
"""The key of an ``https`` address's Secret whose value is sent as ``Authorization: Bearer``."""
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}
_AMBIENT = ("gs", "az")

Secret = Mapping[str, str]


def checked_remote(uri: str) -> str:
    """Return the scheme of ``uri``. Raises DataError when data may not come from there, or when the URI
    chains file systems."""
    scheme = uri_scheme(uri)
    if "::" in uri or scheme not in REMOTE_SCHEMES:
        raise DataError(
            f"data cannot come from {scheme + ':' if scheme else 'a path'} here",
            where=uri[:200],
            fix=f"Use one plain address of {', '.join(f'{name}://' for name in REMOTE_SCHEMES)}",
        )
    return scheme


@contextmanager
def fetched(uri: str, secret: Secret | None = None) -> Iterator[IO[bytes]]:
    """Yield the whole content of a remote address as an open file, and remove it afterwards.

    Raises DataError (absent, too large, no permission), NotAvailableError (its package is missing),
    UserError (the Secret lacks a key) or TransientError (no answer in time).
    """
    scheme = checked_remote(uri)
    uri = scheme + uri[len(scheme) :]
    with tempfile.NamedTemporaryFile(prefix="combee-data-") as file:
        try:
            if scheme == "https":
                _fetch_https(uri, secret, file)
            else:
                _fetch_object(uri, scheme, secret, file)
        except CombeeError:
            raise
        except Exception as error:
            raise _translated(error, uri) from None
        with Path(file.name).open("rb") as content:
            yield content


def object_facts(uri: str, secret: Secret | None = None) -> Mapping[str, Any]:
    """What a bucket says of an object without reading it; raises as ``fetched`` does."""
    scheme = checked_remote(uri)
    try:
        filesystem, path = _filesystem(scheme + uri[len(scheme) :], scheme, secret)
        return dict(filesystem.info(path))
    except CombeeError:
        raise
    except Exception as error:
        raise _translated(error, uri) from None


def headers_of(uri: str, secret: Secret | None = None) -> Mapping[str, Any]:
    """What an ``https`` server says of a file without sending it, by names in small letters; raises as
    ``fetched`` does. A server that allows no HEAD says nothing."""
    scheme = checked_remote(uri)
    sent = {"Accept-Encoding": "identity"}
    if secret is not None:
        sent["Authorization"] = f"Bearer {_token(secret, uri)}"
    try:
        with _client(uri) as client:
            answer = client.head(scheme + uri[len(scheme) :], headers=sent)
    except CombeeError:
        raise
    except Exception as error:
        raise _translated(error, uri) from None
    # What redirects, or answers only who asks for the whole, is read whole.
    return (
        {name.lower(): value for name, value in answer.headers.items()} if answer.status_code == 200 else {}
    )


def _fetch_object(uri: str, scheme: str, secret: Secret | None, file: IO[bytes]) -> None:
    if scheme in _AMBIENT and secret:
        raise NotAvailableError(
            f"secretRef with a {scheme}:// address is not available in this version",
            where=uri,
            fix="Let the pods' own identity read it, or use s3:// or https://",
        )
    filesystem, path = _filesystem(uri, scheme, secret)
    size = int(filesystem.info(path).get("size") or 0)
    if size > MAX_BYTES:
        raise _too_large(uri)
    filesystem.get_file(path, file.name)


def _filesystem(uri: str, scheme: str, secret: Secret | None) -> tuple[Any, str]:
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]

    options = s3_options(secret) if scheme == "s3" else {}
    try:
        filesystem, path = url_to_fs(uri, use_listings_cache=False, **options)
    except ImportError:
        raise NotAvailableError(
            f"reading {scheme}:// needs the package {_PACKAGES[scheme]}, which is not installed here",
            where=uri,
            fix="Use s3:// or https://, or an installation or image with that package",
        ) from None
    return filesystem, str(path)


def _client(uri: str) -> httpx2.Client:
    """Return a client for one address: by the proxy that the machine's settings name for it, if any. Raises
    AddressNotAllowedError."""
    import httpx2

    from combee.clients.connecting import within_reach
    from combee.clients.model.lanes import proxy_of
    from combee.clients.reach import check_by_name

    if proxy := proxy_of(uri):
        check_by_name(httpx2.URL(uri).host)
    timeout = httpx2.Timeout(_QUIET_SECONDS, connect=15.0)
    transport = within_reach(httpx2.HTTPTransport(proxy=proxy))
    return httpx2.Client(transport=transport, timeout=timeout, follow_redirects=False)


def _fetch_https(uri: str, secret: Secret | None, file: IO[bytes]) -> None:
    headers = {"Accept-Encoding": "identity"}
    if secret is not None:
        headers["Authorization"] = f"Bearer {_token(secret, uri)}"
    until = time.monotonic() + DEADLINE_SECONDS
    address = uri
    for _ in range(_REDIRECTS + 1):
        with _client(address) as client, client.stream("GET", address, headers=headers) as response:
            if response.is_redirect:
                target = _redirected(address, response.headers.get("location", ""), uri)
                if urlsplit(target).netloc != urlsplit(address).netloc:
                    headers.pop("Authorization", None)
                address = target
                continue
            _refuse_status(response.status_code, uri)
            _keep(response.iter_bytes(_PIECE), file, uri, until)
            return
    raise DataError("it redirects again and again", where=uri, fix="Give the address it ends at")


def _token(secret: Secret, uri: str) -> str:
    token = secret.get(HTTPS_TOKEN, "").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise DataError(
            f"the Secret of an https:// address needs {HTTPS_TOKEN}, one word of ASCII",
            where=uri,
            fix=f"Add the key {HTTPS_TOKEN}",
        )
    return token


def _redirected(address: str, location: str, uri: str) -> str:
    target = urljoin(address, location)
    parts = urlsplit(target)
    if not location or parts.scheme != "https" or not parts.hostname or parts.username:
        raise DataError(
            "it redirects to something that is not https", where=uri, fix="Give an https:// address"
        )
    return target


def _refuse_status(status: int, uri: str) -> None:
    if status == 200:
        return
    if status in (408, 425, 429) or status >= 500:
        raise TransientError(f"the server of the data answers {status}", where=uri)
    words = {401: "it needs credentials", 403: "no permission", 404: "no such file", 410: "no such file"}
    raise DataError(
        f"{words.get(status, 'the server refuses')} ({status})",
        where=uri,
        fix=f"Check the address; credentials come from secretRef (key {HTTPS_TOKEN})",
    )


def _keep(pieces: Iterator[bytes], file: IO[bytes], uri: str, until: float) -> None:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_BYTES:
            raise _too_large(uri)
        if time.monotonic() > until:
            raise TransientError(f"not read to its end within {DEADLINE_SECONDS:.0f} s", where=uri)
        file.write(piece)
    file.flush()


def _too_large(uri: str) -> DataError:
    return DataError(f"larger than {MAX_BYTES >> 20} MiB", where=uri, fix="Give fewer rows, or a claim")


def _translated(error: Exception, uri: str) -> CombeeError:
    if isinstance(error, FileNotFoundError):
        return DataError("no such object or bucket", where=uri, fix="Check the address")
    if isinstance(error, PermissionError):
        return DataError("no permission to read it", where=uri, fix="Check the credentials of secretRef")
    if is_without_credentials(error):
        return DataError("no credentials for it", where=uri, fix="Give a Secret with secretRef")
    if is_passing(error) or _is_http_failure(error):
        return TransientError(
            f"it cannot be read now ({type(error).__name__})", where=uri, fix="Is the address right?"
        )
    return DataError(
        f"it cannot be read ({type(error).__name__})", where=uri, fix="Check the address and the credentials"
    )


def _is_http_failure(error: Exception) -> bool:
    return any(kind.__name__ == "TransportError" for kind in type(error).__mro__)
