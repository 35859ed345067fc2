"""The visible log blocks of a file slice, in merge order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from lakebed.errors import CorruptTableError
from lakebed.format.log.file import BlockKind, HeaderKey, LogBlock, decode_log_file
from lakebed.model.files import FileSlice, LogFile

BlockFilter = Callable[[str], bool]
"""Whether blocks of that instant are visible in the snapshot."""


@dataclass(frozen=True, slots=True)
class CountedInstants:
    """The writes whose blocks are visible, picklable for workers; includes archived ones, before `first`."""

    completed: frozenset[str]
    first: str

    def includes(self, instant: str) -> bool:
        """Whether blocks of that instant are visible."""
        return instant in self.completed or instant < self.first


@dataclass(frozen=True, slots=True)
class FiledBlock:
    """A log block and the file it was read from."""

    block: LogBlock
    path: str

    @property
    def instant(self) -> str:
        """The instant that wrote the block."""
        return self.block.header.get(HeaderKey.INSTANT_TIME, "")

    @property
    def replaced(self) -> frozenset[str]:
        """The instants whose blocks a log-compacted block replaces; empty for other blocks."""
        times = self.block.header.get(HeaderKey.COMPACTED_BLOCK_TIMES, "")
        return frozenset(time.strip() for time in times.split(",") if time.strip()) - {self.instant}


class Reader(Protocol):
    """Anything that reads whole files by path, such as a storage."""

    def get(self, path: str) -> bytes:
        """The whole file."""
        ...


def load_blocks(
    storage: Reader, file_slice: FileSlice, *, layout: int, counts: BlockFilter, root: str = ""
) -> tuple[FiledBlock, ...]:
    """Visible blocks of the slice's log files, oldest first: no rolled-back, uncommitted or log-compacted ones."""
    read = [
        filed
        for log in file_slice.logs
        for filed in _read_log(storage, f"{root}{file_slice.path(log.name)}", log, layout)
    ]
    if layout == 1:
        read = [filed for filed in _drop_rolled_back(read) if counts(filed.instant)]
    return without_replaced(read)


def without_replaced(blocks: Iterable[FiledBlock]) -> tuple[FiledBlock, ...]:
    """Blocks in merge order; a log-compacted block stands in the place of the newest one it replaces."""
    read = tuple(blocks)
    replaces = {filed.instant: filed.replaced for filed in read if filed.replaced}
    if not replaces:
        return read
    hidden = frozenset().union(*replaces.values())
    kept = [filed for filed in read if filed.instant not in hidden]
    return tuple(sorted(kept, key=lambda filed: _merge_position(filed.instant, replaces)))


def _read_log(storage: Reader, path: str, log: LogFile, layout: int) -> Iterable[FiledBlock]:
    data = storage.get(path)
    if log.size is not None and len(data) < log.size:
        raise CorruptTableError(f"the file has {len(data)} of {log.size} committed bytes", path=path, offset=len(data))
    # In layout 1 writers append to a log file that an earlier, crashed writer may have left torn.
    blocks = decode_log_file(data, path=path, torn="skip" if layout == 1 else "refuse")
    return (FiledBlock(block, path) for block in blocks)


def _drop_rolled_back(blocks: list[FiledBlock]) -> list[FiledBlock]:
    """Drops command blocks, and the earlier blocks of the instants that they roll back."""
    kept: list[FiledBlock] = []
    for filed in blocks:
        if filed.block.kind is BlockKind.COMMAND:
            target = filed.block.header.get(HeaderKey.TARGET_INSTANT_TIME)
            kept = [earlier for earlier in kept if earlier.instant != target]
        else:
            kept.append(filed)
    return kept


def _merge_position(instant: str, replaces: dict[str, frozenset[str]]) -> str:
    # A block only replaces blocks that existed when it was written, so older ones: the recursion ends.
    older = [time for time in replaces.get(instant, ()) if time < instant]
    return max((_merge_position(time, replaces) for time in older), default=instant)
