"""The write operations, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lakebed.model.config import TableConfig
from lakebed.model.words import Action, TableType


class Replaces(Enum):
    """What an operation hides once it completes."""

    NOTHING = "nothing"
    PARTITIONS = "partitions"
    """Every file group of the partitions that it writes to or names."""
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Operation:
    """One kind of write.

    `name` is the name in commit metadata. `finds_keys`: looks up existing keys. `combines`: keeps one row per key.
    `fills_files`: adds inserts to small files.
    """

    name: str
    finds_keys: bool = False
    combines: bool = False
    fills_files: bool = False
    replaces: Replaces = Replaces.NOTHING

    def action(self, config: TableConfig) -> Action:
        """The timeline action of the operation."""
        if self.replaces is not Replaces.NOTHING:
            return Action.REPLACE_COMMIT
        return Action.DELTA_COMMIT if config.table_type is TableType.MERGE_ON_READ else Action.COMMIT


UPSERT = Operation("UPSERT", finds_keys=True, combines=True, fills_files=True)
INSERT = Operation("INSERT", fills_files=True)
BULK_INSERT = Operation("BULK_INSERT")
DELETE = Operation("DELETE", finds_keys=True, combines=True)
DELETE_PARTITION = Operation("DELETE_PARTITION", replaces=Replaces.PARTITIONS)
INSERT_OVERWRITE = Operation("INSERT_OVERWRITE", combines=True, replaces=Replaces.PARTITIONS)
INSERT_OVERWRITE_TABLE = Operation("INSERT_OVERWRITE_TABLE", combines=True, replaces=Replaces.TABLE)
