"""From a url and options to the object-store library's stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import obstore.exceptions
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from lakebed.errors import InvalidInputError
from lakebed.storage.port import checked_folder

_READ_RETRY = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}
_NO_RETRY = {"max_retries": 0}

_COPY_IF_ABSENT = {"copy_if_not_exists": "header:if-none-match:*"}
"""One request that copies only to a free name: S3 takes the standard condition on copies, others their own header."""

_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
_MEMORY: dict[str, MemoryStore] = {}
"""The in-memory tables of this process, by url."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Two clients of one store: one with hidden retries, for reads, and `once` without, for conditional writes.

    A client that retries a create whose reply was lost is refused by its own first attempt. `once` never retries, so a
    refusal is certain; any other failure leaves the outcome unknown.
    """

    retrying: Any
    once: Any
    etag_key: str
    """The metadata field that conditional writes compare: the etag, or its equivalent."""
    spark_root: str | None
    """The root url for Spark's connectors; None if Spark cannot read the store."""
    revoke_wait_s: float
    """How long a request that the store has already accepted may still take effect."""


def open_stores(url: str, options: Mapping[str, str]) -> Stores:
    """The stores for a url with a scheme; InvalidInputError if url or options make no sense."""
    scheme, _, rest = url.partition("://")
    place, _, prefix = rest.partition("/")
    if scheme not in _OPENERS or not place:
        raise bad_url(url, "no such place")
    return _OPENERS[scheme](url, place, checked_folder(prefix), options)


def bad_url(url: str, why: str) -> InvalidInputError:
    """The url cannot be opened."""
    schemes = ", ".join(f"{scheme}://" for scheme in _OPENERS)
    return InvalidInputError(
        f"cannot open {url!r}: {why}", hint=f"give a path, file:// or one of {schemes} with a bucket or name after it"
    )


def _open_memory(url: str, place: str, prefix: str, options: Mapping[str, str]) -> Stores:
    del place, prefix, options
    store = _MEMORY.setdefault(url, MemoryStore())
    return Stores(store, store, "e_tag", None, 0.0)


def _open_s3(url: str, place: str, prefix: str, options: Mapping[str, str]) -> Stores:
    if not any(key.lower().endswith("copy_if_not_exists") for key in options):
        options = {**options, **_COPY_IF_ABSENT}
    return _open(url, S3Store, f"s3://{place}", prefix, options, f"s3a://{place}")


def _open_gcs(url: str, place: str, prefix: str, options: Mapping[str, str]) -> Stores:
    return _open(url, GCSStore, f"gs://{place}", prefix, options, f"gs://{place}", etag_key="version")


def _open_azure(url: str, place: str, prefix: str, options: Mapping[str, str]) -> Stores:
    scheme = url.partition("://")[0]
    stores = _open(url, AzureStore, f"{scheme}://{place}", prefix, options, "")
    container, account = (stores.once.config.get(key) for key in ("container_name", "account_name"))
    root = f"abfss://{container}@{account}.dfs.core.windows.net/{prefix}".rstrip("/") if account else None
    return replace(stores, spark_root=root)


_OPENERS: dict[str, Callable[[str, str, str, Mapping[str, str]], Stores]] = {
    "memory": _open_memory,
    "s3": _open_s3,
    "s3a": _open_s3,
    "gs": _open_gcs,
    "az": _open_azure,
    "abfs": _open_azure,
    "abfss": _open_azure,
}


def _open(
    url: str,
    kind: Any,
    place: str,
    prefix: str,
    options: Mapping[str, str],
    spark_place: str,
    *,
    etag_key: str = "e_tag",
) -> Stores:
    config, client = _split(options)
    # The library decodes percent signs in a url, but a table's url is taken literally.
    quoted = f"{place}/{quote(prefix)}"
    try:
        retrying, once = (
            kind.from_url(quoted, config=config, client_options=client, retry_config=retry)
            for retry in (_READ_RETRY, _NO_RETRY)
        )
    except (obstore.exceptions.BaseError, ValueError) as error:
        raise bad_url(url, str(error).split("\n", 1)[0]) from error
    return Stores(retrying, once, etag_key, f"{spark_place}/{prefix}".rstrip("/"), revoke_wait_s=5.0)


def _split(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options of the store and options of its HTTP client, which the library takes separately."""
    config: dict[str, str] = {}
    client: dict[str, str] = {}
    for key, value in options.items():
        bare = key.lower().removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
        if bare in _CLIENT_OPTIONS:
            client[bare] = value
        else:
            config[key] = value
    return config, client
