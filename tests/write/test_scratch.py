"""Memory that files are encoded into: what comes out is what went in, whether it fits or not."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from lakebed.write.files import encoding
from lakebed.write.files.encoding import encode_file, scratch_memory, trim_scratch


@pytest.mark.parametrize("bytes_max", [0, 1, 999, 1000, 5000])
def test_a_file_that_does_not_fit_is_encoded_all_the_same(bytes_max: int) -> None:
    content = bytes(range(250)) * 4
    assert encode_file(bytes_max, lambda sink: sink.write(content)) == content


def test_memory_serves_the_next_file_of_the_thread() -> None:
    first = encode_file(100, lambda sink: sink.write(b"first"))
    kept = bytes(first)
    assert encode_file(50, lambda sink: sink.write(b"other")) == b"other"
    assert (kept, bytes(first)) == (b"first", b"other")


def test_memory_of_large_files_is_given_back() -> None:
    large = encode_file(100 << 20, lambda sink: sink.write(b"large"))
    assert encode_file(100 << 20, lambda sink: sink.write(b"other")) == b"other"
    assert large == b"large"


def test_threads_have_memory_of_their_own() -> None:
    mine = encode_file(100, lambda sink: sink.write(b"mine"))
    other = threading.Thread(target=encode_file, args=(100, lambda sink: sink.write(b"theirs")))
    other.start()
    other.join()
    assert mine == b"mine"


def test_other_failures_are_told() -> None:
    def encode(sink: pa.NativeFile) -> None:
        raise pa.ArrowInvalid("no such type")

    with pytest.raises(pa.ArrowInvalid, match="no such type"):
        encode_file(100, encode)


def test_little_stays_when_a_write_is_over() -> None:
    kept = scratch_memory(1000)
    other = threading.Thread(target=scratch_memory, args=(1000,))
    other.start()
    other.join()
    assert {threading.get_ident(), other.ident} <= encoding._BUFFERS.keys()
    trim_scratch()
    assert other.ident not in encoding._BUFFERS
    assert scratch_memory(500).obj is kept.obj
    scratch_memory(8 << 20)
    trim_scratch()
    assert threading.get_ident() not in encoding._BUFFERS
