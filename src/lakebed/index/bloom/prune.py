"""Leaving out slices whose base file cannot hold a wanted key."""

from __future__ import annotations

import numpy as np

from lakebed.index.bloom.probe import BLOOM_FILTERS, find_blooms
from lakebed.index.prune import Kept, NotUsed, Query, Slices, counted, masked, serving, wanted_keys


def prune_by_bloom_filters(query: Query, slices: Slices) -> Kept | NotUsed:
    """The slices that have logs, or whose filter may contain a wanted key."""
    keys = wanted_keys(query)
    if isinstance(keys, NotUsed):
        return keys
    metadata = serving(query, BLOOM_FILTERS)
    if isinstance(metadata, NotUsed):
        return metadata
    plain = [(s.group.partition, s.base.name) for s in slices if s.base is not None and not s.logs]
    blooms = find_blooms(metadata, plain)
    kept = [
        s.base is None or bool(s.logs) or s.base.name not in blooms or any(map(blooms[s.base.name].might_contain, keys))
        for s in slices
    ]
    return Kept(
        masked(slices, np.array(kept, bool)),
        f"tried {counted(len(keys), 'key')} on {counted(len(blooms), 'filter')}",
    )
