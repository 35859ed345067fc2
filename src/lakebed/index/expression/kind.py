"""Expression indexes, `expr_index_*`: statistics or Bloom filters of a function of a column. Listed, not used."""

from __future__ import annotations

from lakebed.format.metadata.records import MetadataRecord
from lakebed.index.bloom import kind as bloom
from lakebed.index.column_stats import kind as column_stats
from lakebed.index.kind import IndexKind
from lakebed.index.prune import Kept, NotUsed, Query, Slices
from lakebed.metadata import Unusable
from lakebed.metadata.merging import Form, NewestWins

PREFIX = "expr_index_"


def _encode_current(record: MetadataRecord, form: Form) -> bytes | None:
    return column_stats.encode_current_stats(record, form) or bloom.encode_current_filter(record, form)


class ExpressionIndexes(IndexKind):
    """Statistics or Bloom filters of a function of a column."""

    partition = PREFIX
    words = ("expression",)
    is_kept = False
    is_built = False
    merge = NewestWins(None, _encode_current)

    @property
    def label(self) -> str:
        """One name for all expression indexes."""
        return "expression_index"

    def matches(self, partition: str) -> bool:
        """Each index has a partition of its own."""
        return partition.startswith(PREFIX)

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """Never used: its values depend on the time zone and locale of the engine that wrote them."""
        del slices
        if isinstance(query.metadata, Unusable):
            return NotUsed("there is no usable metadata table")
        if not any(map(self.matches, query.metadata.ready)):
            return NotUsed("the table has none")
        return NotUsed("lakebed cannot tell under which time zone and locale it was built")


EXPRESSION = ExpressionIndexes()
