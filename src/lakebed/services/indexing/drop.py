"""Dropping an index: the configuration first, so that nobody looks for files that are about to go."""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.errors import InvalidInputError
from lakebed.index.kinds import all_kinds, is_index_name, named_partitions
from lakebed.metadata.table import FILES, ROOT
from lakebed.services.indexing.plans import settle
from lakebed.services.indexing.steps import clear_partition, set_ready, store_definition
from lakebed.table.definitions import load_stored
from lakebed.transaction.section import Section
from lakebed.transaction.transactions import Transactions


def drop_index(transactions: Transactions, name: str) -> None:
    """Takes an index out of the table: its name, its definition, its files. What a crash leaves, a new call drops."""
    partition = named_partitions().get(name, name)
    with transactions.section() as section:
        taken_back = settle(transactions, section, partition)
        if partition in taken_back:
            return  # There was but a plan that nobody ran.
        _check(section, partition)
        config = section.config
        if partition in (*config.metadata_partitions, *config.metadata_partitions_inflight, *config.lost_partitions):
            ready = [each for each in config.metadata_partitions if each != partition]
            set_ready(section, ready, dropped=[partition])
        store_definition(section, partition, None)
        clear_partition(section, partition)


def _check(section: Section, partition: str) -> None:
    ready, lost = section.config.metadata_partitions, section.config.lost_partitions
    if not is_index_name(partition):
        raise InvalidInputError(f"{partition!r} is not the name of an index", hint=f"there are {', '.join(ready)}")
    if partition == FILES:
        raise InvalidInputError(
            "all other indexes depend on the file list", hint='to repair it: create("files", rebuild=True)'
        )
    _check_not_needed(partition, ready)
    named = (*ready, *section.config.metadata_partitions_inflight, *lost)
    if partition not in named and not _has_leftovers(section, partition):
        raise InvalidInputError(
            f"table {section.config.name} has no index {partition!r}",
            hint=f"it has {', '.join(ready) or 'none'}",
        )


def _check_not_needed(partition: str, ready: Sequence[str]) -> None:
    """Raises if another index that is ready needs this one."""
    for kind in (kind for kind in all_kinds() if any(map(kind.matches, ready))):
        if kind.made_of == partition:
            raise InvalidInputError(
                f"{kind.partition} are derived from {partition}", hint=f"drop {kind.partition} first"
            )
        if kind.rests_on == partition:
            raise InvalidInputError(
                f"{kind.words[0]} indexes depend on {partition}", hint=f"drop the {kind.words[0]} indexes first"
            )


def _has_leftovers(section: Section, partition: str) -> bool:
    storage = section.ports.storage
    return partition in load_stored(storage, section.config) or bool(storage.list(f"{ROOT}{partition}"))
