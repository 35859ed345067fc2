"""Expression indexes: listed, neither kept by writes nor used by reads."""

from __future__ import annotations

from lakebed.format.metadata.records import MetadataRecord
from lakebed.index.bloom import kind as bloom
from lakebed.index.column_stats import kind as column_stats
from lakebed.index.kind import IndexKind
from lakebed.metadata.merging import Form, NewestWins

PREFIX = "expr_index_"


def _encode_again(record: MetadataRecord, form: Form) -> bytes | None:
    return column_stats.encode_again(record, form) or bloom.encode_again(record, form)


class ExpressionIndexes(IndexKind):
    """Statistics or Bloom filters of a function of a column."""

    partition = PREFIX
    words = ("expression",)
    is_kept = False
    merge = NewestWins(None, _encode_again)

    def matches(self, partition: str) -> bool:
        """Each has a name of its own."""
        return partition.startswith(PREFIX)


EXPRESSION = ExpressionIndexes()
