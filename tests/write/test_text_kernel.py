"""The least and greatest of many texts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.format.hfile.arrow import binary_buffers
from lakebed.kernels.ordering import find_bounds

pytestmark = pytest.mark.usefixtures("either_implementation")


@given(st.lists(st.text(max_size=20), min_size=1, max_size=40))
def test_bounds_are_least_and_greatest_by_bytes(texts: list[str]) -> None:
    low, high = find_bounds(*binary_buffers(pa.array(texts, pa.string())))
    assert (texts[low], texts[high]) == (min(texts, key=str.encode), max(texts, key=str.encode))
