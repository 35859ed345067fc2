from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.cli.words import count, duration, listed, printable, readable, size


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (435_419, "425.2 KiB"),
        (1_048_575, "1.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (5 << 60, "5120.0 PiB"),
    ],
)
def test_sizes(bytes_: int, text: str) -> None:
    assert size(bytes_) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0004, "0.4 ms"),
        (0.0099, "9.9 ms"),
        (0.00996, "10 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (6.353, "6.4 s"),
        (59.96, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7620, "2 h 07 min"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_counts_and_lists() -> None:
    assert [count(n, "row") for n in (0, 1, 12_000)] == ["0 rows", "1 row", "12,000 rows"]
    assert listed(()) == "-"
    assert listed(("a", "b")) == "a, b"


def test_readable_times() -> None:
    assert readable("2026-11-16T00:01:29.585Z") == "2026-11-16 00:01:29"
    assert readable(None) == "-"


@given(st.text())
def test_printable_text_keeps_to_its_line_and_sends_no_commands(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()


def test_printable_escapes() -> None:
    assert printable("a\nb\x1b[31m\u202ec é") == r"a\nb\x1b[31m\u202ec é"
