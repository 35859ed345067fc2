"""Checking Bloom filters: those in the index, and those in footers."""

from __future__ import annotations

from lakebed.engine.engines import map_bounded
from lakebed.format.metadata.keys import bloom_key
from lakebed.index.bloom.probe import BLOOM_FILTERS
from lakebed.index.check import Checked, Tally
from lakebed.index.data_files import base_files, read_footer
from lakebed.model.metadata import BloomRecord
from lakebed.observe import Meter


def check_bloom_filters(checked: Checked, tally: Tally) -> None:
    """Entries and the filters in footers. Keys of entries are hashes: what is extra is told by its key."""
    files = base_files(checked.state)
    meter = Meter(BLOOM_FILTERS, len(files), checked.observer)
    names, stored = {}, {}
    for each, footer in zip(files, map_bounded(files, read_footer), strict=True):
        meter.step()
        if footer.bloom_text is not None:
            key = bloom_key(each.partition, each.file.name)
            names[key], stored[each.path] = each.path, str(hash(footer.bloom_text))
    indexed = {
        names.get(key, key): str(hash(payload.bloom))
        for key, payload in checked.payloads()
        if isinstance(payload, BloomRecord) and not payload.is_deleted
    }
    tally.compare(indexed, stored)
