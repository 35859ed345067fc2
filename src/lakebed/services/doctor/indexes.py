"""Findings about indexes: lost, incomplete, different from the rows, or outgrown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from lakebed.index.check import IndexCheck
from lakebed.index.keys import KEY_INDEX, ShardSizing
from lakebed.index.kinds import named_partitions
from lakebed.index.lost import has_lost_global_index, lost_indexes
from lakebed.metadata.table import FILES
from lakebed.model.files import FileSlice
from lakebed.services.doctor.finding import Finding, FindingKind, Remedy
from lakebed.services.doctor.look import Definitions
from lakebed.services.indexing.indexes import BROKEN, UNFINISHED, IndexInfo
from lakebed.table import TableState

_DROP = "drop it, lakebed index drop PATH {}, and create it again with Apache Hudi"


def find_definition_problems(path: str, definitions: Definitions) -> Iterator[Finding]:
    """Findings about definitions that are lost or broken, and indexes without one."""
    if definitions.problem is not None:
        blocks = "every write, and reads through the metadata table"
        repair = " ".join(_restoring(definitions))
        problem = definitions.problem.removeprefix(f"{path}: ")
        yield Finding(FindingKind.INDEX, path, problem, blocks, Remedy.RESTORE_DEFINITIONS, repair)
    for name in definitions.undefined:
        problem = "its definition is lost, and its columns are recorded nowhere else"
        yield Finding(
            FindingKind.INDEX, name, problem, "reads through it, and every write", Remedy.BY_HAND, _DROP.format(name)
        )


def _restoring(definitions: Definitions) -> Iterator[str]:
    yield "rebuild it from the contents of the metadata table"
    if definitions.unknown:
        yield f"except for {', '.join(definitions.unknown)}: their columns are recorded nowhere else"
    if definitions.without_window:
        yield f"and drop {', '.join(definitions.without_window)}: its window is recorded nowhere else; create it again"


def find_broken(infos: Iterable[IndexInfo], lost: Collection[str] = ()) -> Iterator[Finding]:
    """Findings about indexes with missing files, and unfinished ones; `find_lost_indexes` reports the `lost` ones."""
    for info in infos:
        if info.state == BROKEN:
            yield _rebuilt(info.name, "some of its files are missing", "reads through it, and every write")
        elif info.state == UNFINISHED and info.name not in lost:
            yield _rebuilt(
                info.name, "it is defined, but does not exist: a process died while building it", "reads by it"
            )


def _rebuilt(name: str, problem: str, blocks: str, examples: tuple[str, ...] = ()) -> Finding:
    can = name in named_partitions().values() and name != FILES
    repair = "rebuild it from the rows" if can else "drop it and create it with Apache Hudi"
    return Finding(
        FindingKind.INDEX, name, problem, blocks, Remedy.REBUILD if can else Remedy.BY_HAND, repair, examples
    )


def describe_check(check: IndexCheck) -> Iterator[Finding]:
    """Findings about an index that differs from the rows."""
    examples = tuple(f"{each.what}: {each.key}" for each in check.examples)
    kinds = ("missing", "extra", "different")
    told = ", ".join(f"{getattr(check, kind):,} {kind}" for kind in kinds if getattr(check, kind))
    if told:
        blocks = "reads and writes that use it may miss rows"
        yield _rebuilt(check.name, f"index and rows differ: {told}; {check.checked:,} checked", blocks, examples)
    if check.repeated:
        yield Finding(
            FindingKind.INDEX,
            check.name,
            f"{check.repeated:,} record keys occur in more than one row",
            "upserts and deletes of these keys change one of the rows",
            Remedy.BY_HAND,
            "delete the keys and write the right rows again; a repair cannot know which ones are right",
            examples,
        )


def find_outgrown(slices: Iterable[FileSlice], sizing: ShardSizing) -> Iterator[Finding]:
    """Advice to reshard a record index whose shards are larger than those of a new index would be."""
    sizes = [sum(file.size or 0 for file in ((s.base,) if s.base else ()) + s.logs) for s in slices]
    if not sizes or max(sizes) <= sizing.shard_bytes_max:
        return
    large = sum(size > sizing.shard_bytes_max for size in sizes)
    shards = wanted_shards(sum(sizes), sizing)
    yield Finding(
        FindingKind.INDEX,
        KEY_INDEX,
        f"{large} of {len(sizes)} shards exceed {sizing.shard_bytes_max:,} bytes; the largest has {max(sizes):,}",
        "nothing; lookups and compactions of the metadata table get slower",
        Remedy.BY_HAND,
        f"add shards, while writers continue: lakebed index reshard PATH {KEY_INDEX} --shards {shards}",
    )


def wanted_shards(total_bytes: int, sizing: ShardSizing) -> int:
    """Number of shards for entries of that size, with room to grow."""
    needed = int(total_bytes * sizing.growth) // max(1, sizing.shard_bytes_max) + 1
    return min(max(needed, sizing.least), sizing.most)


def find_lost_indexes(state: TableState) -> Iterator[Finding]:
    """Findings about lost indexes, and what the table does without them."""
    for name in lost_indexes(state):
        can = name in named_partitions().values()
        repair = "rebuild it from the rows" if can else "create it with Apache Hudi, or drop it for good"
        yield Finding(
            FindingKind.INDEX,
            name,
            "the table lost it: to a restore, a process that died, or another engine",
            _meaning(state, name),
            Remedy.REBUILD if can else Remedy.BY_HAND,
            repair,
        )


def _meaning(state: TableState, name: str) -> str:
    if name == FILES:
        return "reads and writes list folders, which takes longer"
    if name != KEY_INDEX:
        return "reads that could use it to exclude files"
    if has_lost_global_index(state):
        return "upserts: a key that is stored in another partition would be duplicated"
    return "reads by key; writes look for keys in files, which takes longer"
