"""Running write tasks: a new base file, a merged one, or a log file, each noted by a marker before it is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lakebed.engine.randomness import new_write_token
from lakebed.errors import RolledBackError, ServiceCancelledError, WriteConflictError
from lakebed.transaction.markers import load_markers
from lakebed.transaction.settle import delete_file
from lakebed.write.base_file import create_base_file
from lakebed.write.log_file import append_log_file
from lakebed.write.merge_file import merge_base_file
from lakebed.write.plan import is_append
from lakebed.write.values import WriteContext, WriteTask, WrittenFile


def run_write_task(task: WriteTask) -> tuple[WrittenFile, ...]:
    """The files that a task makes. Running it again makes others, with another write token."""
    task = replace(task, token=new_write_token(task.number))
    if task.file_slice is None:
        return create_base_file(task)
    return append_log_file(task) if is_append(task) else merge_base_file(task)


def find_strays(context: WriteContext, written: Sequence[WrittenFile]) -> tuple[str, ...]:
    """Files that were marked but that no result names: those of task attempts that failed or came second.

    The markers of a plan that another process has taken over are that one's, too: strays of a table service are deleted
    in its commit section alone, where it is certain that nobody has.
    """
    kept = {file.stat.path for file in written}
    return tuple(sorted(load_markers(context.storage, context.instant) - kept))


def delete_strays(context: WriteContext, written: Sequence[WrittenFile]) -> None:
    """Deletes the strays of a write, whose instant no other process takes on."""
    for path in find_strays(context, written):
        delete_file(context.storage, path)


@contextmanager
def deleted_if_refused(context: WriteContext, written: Sequence[WrittenFile]) -> Iterator[None]:
    """Deletes the files of an attempt at a plan whose commit is refused: they may be younger than what undid it.

    Their names are this attempt's alone, so nobody has committed them. A failure of another kind leaves them to the
    next attempt: the store may not have said what became of the commit.
    """
    try:
        yield
    except (RolledBackError, WriteConflictError, ServiceCancelledError):
        for file in written:
            delete_file(context.storage, file.stat.path)
        raise
