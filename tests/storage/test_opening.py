"""Paths and urls: what they open, offline."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lakebed.errors import InvalidInputError
from lakebed.storage import Outcome, open_storage

AZURE = {"account_name": "acct", "account_key": "a2V5"}


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/data/orders", "/data/orders"),
        ("/data/orders/", "/data/orders"),
        (Path("/data/orders"), "/data/orders"),
        ("/data/a%20b", "/data/a%20b"),
        ("file:/data/orders", "/data/orders"),
        ("file:///data/orders/", "/data/orders"),
        ("FILE:///data/orders", "/data/orders"),
        ("file://localhost/data/a%20b", "/data/a b"),
        ("file:///data/%C3%BC", "/data/ü"),
    ],
)
def test_local_urls(url: str | Path, path: str) -> None:
    assert open_storage(url).url == path


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = open_storage("orders")
    monkeypatch.chdir("/")
    assert storage.create("f", b"x") is Outcome.DONE
    assert (tmp_path / "orders" / "f").read_bytes() == b"x"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a\0b",
        "a\ud800b",
        "s3://bucket/a\ud800b",
        "file:///a\udcffb",
        "file://host/data",
        "file:///a%00b",
        "ftp://host/x",
        "s3://",
        "s3:///x",
        "memory://",
        "hdfs://n/x",
        Path("s3://b/x"),
    ],
)
def test_bad_urls(url: str | Path) -> None:
    with pytest.raises(InvalidInputError, match="hint"):
        open_storage(url)


@pytest.mark.parametrize("url", ["s3://bucket//x", "s3://bucket/a/../b", "gs://bucket/./x"])
def test_bad_prefixes(url: str) -> None:
    with pytest.raises(InvalidInputError):
        open_storage(url)


@pytest.mark.parametrize(
    ("url", "options", "uri"),
    [
        ("s3://bucket/a b/orders", {"region": "eu-central-1"}, "s3a://bucket/a b/orders/p=1/f"),
        ("s3a://bucket/orders/", {}, "s3a://bucket/orders/p=1/f"),
        ("s3://bucket", {}, "s3a://bucket/p=1/f"),
        ("s3://bucket/a%2Fb[1]", {}, r"s3a://bucket/a%2Fb\[1\]/p=1/f"),
        ("gs://bucket/orders", {"skip_signature": "true"}, "gs://bucket/orders/p=1/f"),
        ("az://box/orders", AZURE, "abfss://box@acct.dfs.core.windows.net/orders/p=1/f"),
        ("abfs://box@acct.dfs.core.windows.net/orders", {}, "abfss://box@acct.dfs.core.windows.net/orders/p=1/f"),
        ("abfss://box@acct.dfs.core.windows.net", {}, "abfss://box@acct.dfs.core.windows.net/p=1/f"),
    ],
)
def test_object_stores_open_offline(url: str, options: dict[str, str], uri: str) -> None:
    storage = open_storage(url, options)
    assert storage.url == url.rstrip("/")
    assert storage.uri("p=1/f") == uri
    assert pickle.loads(pickle.dumps(storage)).uri("p=1/f") == uri


@pytest.mark.parametrize(
    "options",
    [
        {"endpoint": "http://127.0.0.1:9", "allow_http": "true", "access_key_id": "a", "secret_access_key": "b"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true", "aws_region": "us-east-1"},
        {"timeout": "5s", "connect_timeout": "1s", "skip_signature": "true"},
        {"copy_if_not_exists": "multipart"},
        {"aws_copy_if_not_exists": "header:cf-copy-destination-if-none-match:*"},
    ],
)
def test_options_reach_store_or_client(options: dict[str, str]) -> None:
    assert open_storage("s3://bucket/orders", options).url == "s3://bucket/orders"


@pytest.mark.parametrize(
    "options", [{"acess_key_id": "typo"}, {"access_key_id": "without its secret"}, {"timeout": "?"}]
)
def test_bad_options(options: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="cannot open 's3://bucket/orders'"):
        open_storage("s3://bucket/orders", options)


def test_memory_is_shared_by_name() -> None:
    open_storage("memory://shared").create("f", b"x")
    assert open_storage("memory://shared").get("f") == b"x"
    assert open_storage("memory://shared/inner").find("f") is None
    with pytest.raises(InvalidInputError, match="Spark cannot read"):
        open_storage("memory://shared").uri("f")
