"""Data by address: what is read, what is refused, and who gets the credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from combee.clients.data import remote
from combee.clients.data.marks import mark_of
from combee.clients.data.rows import read_lines
from combee.clients.store.s3 import s3_options
from combee.errors import DataError, NotAvailableError, TransientError, UserError
from tls_server import TlsServer

ROWS = b'{"context": "a", "target": "1"}\n{"context": "b", "target": "2"}\n'


@pytest.fixture(autouse=True)
def trusted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "tls" in request.fixturenames:
        monkeypatch.setenv("SSL_CERT_FILE", str(request.getfixturevalue("certificate")[1]))


def lines(uri: str, secret: dict[str, str] | None = None) -> list[bytes]:
    return list(read_lines(uri, max_bytes=100, secret=secret))


REFUSED = [
    "file:///etc/passwd",
    "simplecache::file:///etc/passwd",
    "s3://b/k::file:///etc/passwd",
    "http://h/k",
    "ftp://h/k",
    "memory://x",
    "github://o:r@/x",
    "",
    "/etc/passwd",
]


@pytest.mark.parametrize("uri", REFUSED)
def test_only_listed_schemes_are_addresses(uri: str) -> None:
    with pytest.raises(DataError, match="data cannot come from"), remote.fetched(uri):
        pass


@pytest.mark.parametrize(("scheme", "package"), [("gs", "gcsfs"), ("az", "adlfs")])
def test_a_scheme_without_its_package_says_so(scheme: str, package: str) -> None:
    with pytest.raises(NotAvailableError, match=f"needs the package {package}"):
        lines(f"{scheme}://bucket/key")


def test_https_is_read_with_its_token(tls: TlsServer) -> None:
    tls.answer = lambda request: (200, {}, ROWS)
    assert b"".join(lines(f"{tls.url}/rows.jsonl", {"TOKEN": "abc\n"})) == ROWS
    assert tls.asked[0].headers["Authorization"] == "Bearer abc"
    assert b"".join(lines(f"{tls.url}/rows.jsonl")) == ROWS
    assert "Authorization" not in tls.asked[1].headers


def test_a_redirect_stays_on_https_and_takes_no_credentials_elsewhere(tls: TlsServer) -> None:
    def answer(request):
        if request.path == "/moved":
            return 302, {"Location": f"https://127.0.0.1:{tls.port}/there"}, b""
        if request.path == "/here":
            return 302, {"Location": "/there"}, b""
        return 200, {}, ROWS

    tls.answer = answer
    assert b"".join(lines(f"{tls.url}/moved", {"TOKEN": "abc"})) == ROWS
    assert "Authorization" not in tls.asked[-1].headers
    assert b"".join(lines(f"{tls.url}/here", {"TOKEN": "abc"})) == ROWS
    assert tls.asked[-1].headers["Authorization"] == "Bearer abc"


@pytest.mark.parametrize("location", ["http://localhost/x", "file:///etc/passwd", "ftp://h/x", ""])
def test_a_redirect_to_anything_else_is_refused(tls: TlsServer, location: str) -> None:
    tls.answer = lambda request: (302, {"Location": location}, b"")
    with pytest.raises(DataError, match="redirects to something that is not https"):
        lines(f"{tls.url}/x")


def test_a_loop_of_redirects_ends(tls: TlsServer) -> None:
    tls.answer = lambda request: (302, {"Location": "/x"}, b"")
    with pytest.raises(DataError, match="again and again"):
        lines(f"{tls.url}/x")


STATUSES = [
    (404, DataError, "no such file"),
    (403, DataError, "no permission"),
    (500, TransientError, "answers 500"),
    (429, TransientError, "answers 429"),
]


@pytest.mark.parametrize(("status", "kind", "words"), STATUSES)
def test_what_a_status_means(tls: TlsServer, status: int, kind: type[Exception], words: str) -> None:
    tls.answer = lambda request: (status, {}, b"SECRET ROW")
    with pytest.raises(kind, match=words) as caught:
        lines(f"{tls.url}/x")
    assert "SECRET" not in str(caught.value)


def test_what_is_too_large_is_refused(tls: TlsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MAX_BYTES", 50)
    tls.answer = lambda request: (200, {}, b"x" * 51)
    with pytest.raises(DataError, match="larger than"):
        lines(f"{tls.url}/x")


def test_a_certificate_of_nobody_is_refused(tls: TlsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(TransientError, match="cannot be read now"):
        lines(f"{tls.url}/x")
    assert tls.asked == []


def test_nothing_stays_on_the_disk(tls: TlsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tls.answer = lambda request: (200, {}, ROWS)
    lines(f"{tls.url}/x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_an_s3_secret_needs_both_keys(missing: str) -> None:
    secret = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hidden"}
    del secret[missing]
    with pytest.raises(UserError, match=missing) as caught:
        s3_options(secret)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("url", ["file:///x", "http://user:pw@h", "h:9000", "http://", "http://h:99999"])
def test_an_s3_endpoint_is_an_http_address(url: str) -> None:
    secret = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "k", "AWS_ENDPOINT_URL": url}
    with pytest.raises(UserError, match="AWS_ENDPOINT_URL"):
        s3_options(secret)


@pytest.mark.parametrize("header", ["ETag", "Last-Modified"])
def test_a_mark_is_what_the_server_says_of_a_file_and_nothing_is_sent(tls: TlsServer, header: str) -> None:
    said = ["one"]
    tls.answer = lambda request: (200, {header: said[0]}, b"")
    first = mark_of(f"{tls.url}/rows.jsonl", {"TOKEN": "abc"})
    assert mark_of(f"{tls.url}/rows.jsonl", {"TOKEN": "abc"}) == first
    said[0] = "two"
    assert mark_of(f"{tls.url}/rows.jsonl", {"TOKEN": "abc"}) != first
    assert {request.method for request in tls.asked} == {"HEAD"}
    assert all(request.headers["Authorization"] == "Bearer abc" for request in tls.asked)


@pytest.mark.parametrize("head", [200, 302, 405])
def test_a_mark_is_the_contents_where_the_server_says_nothing(tls: TlsServer, head: int) -> None:
    rows = [ROWS]

    def answer(request):
        return (head, {}, b"") if request.method == "HEAD" else (200, {}, rows[0])

    tls.answer = answer
    first = mark_of(f"{tls.url}/rows.jsonl")
    assert mark_of(f"{tls.url}/rows.jsonl") == first
    rows[0] = ROWS[:-1]
    assert mark_of(f"{tls.url}/rows.jsonl") != first


def test_a_mark_of_what_is_not_there_says_so(tls: TlsServer) -> None:
    with pytest.raises(DataError, match="no such file"):
        mark_of(f"{tls.url}/rows.jsonl")
