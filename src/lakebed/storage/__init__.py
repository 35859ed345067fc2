"""Storage: local disks, memory and object stores behind one contract. Nothing else touches files of a table.

storage = open_storage("s3://bucket/orders", {"region": "eu-central-1"})
storage.get(".hoodie/hoodie.properties")
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote

from lakebed.errors import InvalidInputError
from lakebed.model.text import is_unicode
from lakebed.storage.local import LocalStorage
from lakebed.storage.port import Listed, Outcome, RequestCounts, Requests, Storage, Ticket

__all__ = ["Listed", "Outcome", "RequestCounts", "Requests", "Storage", "Ticket", "open_storage"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")


def open_storage(url: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Storage:
    """The storage of the table at a path or url. Nothing is asked of the store and nothing is created.

    A local path, `file:`, `s3://` (or `s3a://`), `gs://`, `az://`, `abfs://` (or `abfss://`), and `memory://<name>` for
    a table that lives as long as this process. `options` go to the object store: keys, region, endpoint, `allow_http`.
    The storage pickles as its url and options, so that workers open it again.
    """
    text = os.fspath(url)
    if not isinstance(text, str) or not text or not _is_path(text):
        raise InvalidInputError(f"{url!r} is not the path of a table", hint="give a path or a url as text")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return LocalStorage(os.path.abspath(text))
    name = scheme[1].lower()
    if name == "file":
        return LocalStorage(_local_path(text, text[scheme.end() :]))
    # Loaded only here: a table on a local disk does not pay for the object-store library.
    from lakebed.storage.objects import ObjectStorage

    return ObjectStorage(f"{name}{text[len(name) :].rstrip('/')}", options or {})


def _is_path(text: str) -> bool:
    """Whether a file can have the path: it has no NUL and no unpaired surrogate."""
    return "\0" not in text and is_unicode(text)


def _local_path(url: str, rest: str) -> str:
    """The path of a file url: `file:/a`, `file:///a` or `file://localhost/a`, with percent signs undone."""
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise InvalidInputError(f"{url!r} names another host", hint="write file:///folder for a local table")
        rest = slash + path
    path = unquote(rest)
    if not path.startswith("/") or not _is_path(path):
        raise InvalidInputError(f"{url!r} is not the path of a table", hint="write file:///folder for a local table")
    return os.path.abspath(path)
