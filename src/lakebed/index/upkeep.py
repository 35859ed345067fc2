"""Maintenance of the metadata table with the merge rules of its indexes."""

from __future__ import annotations

from lakebed.engine.engines import Engine
from lakebed.index.kinds import merge_rule
from lakebed.index.record.new_tables import NewTables
from lakebed.index.record.shard_cache import ShardCache
from lakebed.metadata.upkeep.maintenance import Upkeep, maintain_metadata
from lakebed.transaction.transactions import Transactions


def maintain(
    transactions: Transactions, engine: Engine, log_blocks: int | None = None, cache: ShardCache | None = None
) -> None:
    """Compacts, cleans and archives the metadata table as far as that is due; for `log_blocks` see `is_due`.

    With a `cache`, it also stores key tables of compacted shards of the record index; tasks then run in this process.
    """
    upkeep = Upkeep(engine, merge_rule, None if cache is None else NewTables(cache))
    maintain_metadata(transactions, upkeep, log_blocks)
