"""A small S3 on the loopback: objects, ranges, listings in pages, conditional puts and copies, and lost replies."""

from __future__ import annotations

import hashlib
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape


def _behave(method: str, key: str) -> None:
    return None


@dataclass
class Fake:
    """What the server holds and how it misbehaves."""

    objects: dict[str, bytes] = field(default_factory=dict)
    modified: dict[str, int] = field(default_factory=dict)
    """When objects were last put, in seconds, as S3 tells it."""
    seen: list[str] = field(default_factory=list)
    misbehave: Callable[[str, str], str | None] = _behave
    """From a request to None, "500 before" or "500 after" it takes effect, "drop after", "403" or "404"."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0
    page: int = 3
    """Names per page of a listing: small, so that tests run through several."""

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data
        self.modified[key] = int(time.clock_gettime(time.CLOCK_REALTIME))

    def reset(self) -> None:
        self.objects.clear()
        self.modified.clear()
        self.seen.clear()
        self.misbehave = _behave

    @property
    def options(self) -> dict[str, str]:
        return {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "allow_http": "true",
            "region": "us-east-1",
            "access_key_id": "user",
            "secret_access_key": "secret",
        }


def start() -> tuple[Fake, ThreadingHTTPServer]:
    fake = Fake()
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = _Server(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    fake.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return fake, server


class _Server(ThreadingHTTPServer):
    """Says nothing of clients that are killed in the middle of a request."""

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    fake: Fake
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve("GET")

    def do_HEAD(self) -> None:
        self._serve("HEAD")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix("/bucket").lstrip("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        with self.fake.lock:
            self.fake.seen.append(f"{method} {key}")
            fault = self.fake.misbehave(method, key)
            if fault == "403":
                return self._answer(403, _error("AccessDenied"))
            if fault == "404":
                return self._answer(404, _error("NoSuchBucket"))
            if fault == "500 before":
                return self._answer(500, _error("InternalError"))
            status, data, headers = self._apply(method, key, query, body)
        if fault == "500 after":
            return self._answer(500, _error("InternalError"))
        if fault == "drop after":
            self.close_connection = True
            self.connection.shutdown(2)
            return None
        return self._answer(status, data, headers)

    def _apply(self, method: str, key: str, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        if method == "PUT":
            return self._put(key, body)
        if method == "POST" and "delete" in query:
            keys = [unescape(found) for found in re.findall(r"<Key>(.*?)</Key>", body.decode())]
            for name in keys:
                self.fake.objects.pop(name, None)
            deleted = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in keys)
            return 200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), {}
        if method == "DELETE":
            self.fake.objects.pop(key, None)
            return 204, b"", {}
        if not key:
            return 200, self._list(query), {}
        return self._get(key)

    def _put(self, key: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        objects = self.fake.objects
        if self.headers.get("if-none-match") == "*" and key in objects:
            return 412, _error("PreconditionFailed"), {}
        wanted = self.headers.get("if-match")
        if wanted is not None and key not in objects:
            return 404, _error("NoSuchKey"), {}
        if wanted is not None and wanted != _etag(objects[key]):
            return 412, _error("PreconditionFailed"), {}
        source = self.headers.get("x-amz-copy-source")
        if source is not None:
            source = unquote(source).lstrip("/").removeprefix("bucket/")
            if source not in objects:
                return 404, _error("NoSuchKey"), {}
            self.fake.put(key, objects[source])
            return 200, f"<CopyObjectResult><ETag>{_etag(objects[key])}</ETag></CopyObjectResult>".encode(), {}
        self.fake.put(key, body)
        return 200, b"", {"etag": _etag(body)}

    def _get(self, key: str) -> tuple[int, bytes, dict[str, str]]:
        if key not in self.fake.objects:
            return 404, _error("NoSuchKey"), {}
        data = self.fake.objects[key]
        headers = {"etag": _etag(data), "last-modified": formatdate(self.fake.modified.get(key, 0), usegmt=True)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range") or "")
        if asked is None:
            return 200, data, headers
        first, last = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
        if first >= len(data):
            return 416, _error("InvalidRange"), {}
        headers["content-range"] = f"bytes {first}-{last}/{len(data)}"
        return 206, data[first : last + 1], headers

    def _list(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        last = query.get("continuation-token", "")
        rows: dict[str, str] = {}
        for key in sorted(self.fake.objects):
            if not key.startswith(prefix):
                continue
            inner, found, _ = key.removeprefix(prefix).partition(delimiter or "\0")
            if found:
                name = prefix + inner + found
                rows[name] = f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            else:
                data = self.fake.objects[key]
                put_at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(self.fake.modified.get(key, 0)))
                rows[key] = (
                    f"<Contents><Key>{escape(key)}</Key><LastModified>{put_at}</LastModified>"
                    f"<ETag>{escape(_etag(data))}</ETag><Size>{len(data)}</Size></Contents>"
                )
        names = [name for name in rows if name > last]
        page = self.fake.page
        more = len(names) > page
        token = f"<NextContinuationToken>{escape(names[page - 1])}</NextContinuationToken>" if more else ""
        inside = "".join(rows[name] for name in names[:page])
        truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        return f"<ListBucketResult>{truncated}{token}{inside}</ListBucketResult>".encode()

    def _answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{quote(code)}</Message></Error>".encode()
