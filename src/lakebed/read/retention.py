"""Whether a past snapshot can still be read: the cleaner may have removed its files."""

from __future__ import annotations

from lakebed.errors import InvalidInputError
from lakebed.format.file_names import decode_data_file_name
from lakebed.model.files import BaseFile, FileGroupId
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.table import TableState
from lakebed.timeline import Snapshot


def check_retained(state: TableState, snapshot: Snapshot) -> None:
    """Raises InvalidInputError if a file that the snapshot needs has been cleaned: fewer rows would come back silently."""
    removed = _removed_bases(state)
    if not removed:
        return
    replaced = state.replaced(snapshot)
    present = _present_bases(state)
    for group, instants in removed.items():
        seen = [i for i in instants | present.get(group, set()) if snapshot.completion_of(i) is not None]
        if seen and max(seen) in instants and group not in replaced:
            raise InvalidInputError(
                f"table {state.config.name} as of {snapshot.until} needs files of {group} that have been cleaned",
                hint=f"the earliest instant that is still readable is about {_earliest_retained(state)}",
            )


def _removed_bases(state: TableState) -> dict[FileGroupId, set[InstantTime]]:
    removed: dict[FileGroupId, set[InstantTime]] = {}
    for instant in state.timeline.completed():
        if instant.action is Action.CLEAN:
            for partition, names in state.documents.clean(instant).deleted_files.items():
                for name in names:
                    file = decode_data_file_name(name.rpartition("/")[2], folder=partition)
                    if isinstance(file, BaseFile):
                        removed.setdefault(FileGroupId(partition, file.file_id), set()).add(file.instant)
    return removed


def _present_bases(state: TableState) -> dict[FileGroupId, set[InstantTime]]:
    present: dict[FileGroupId, set[InstantTime]] = {}
    for partition, files in state.files.items():
        for file in files:
            if isinstance(file, BaseFile):
                present.setdefault(FileGroupId(partition, file.file_id), set()).add(file.instant)
    return present


def _earliest_retained(state: TableState) -> str:
    cleans = [i for i in state.timeline.completed() if i.action is Action.CLEAN]
    retained = [state.documents.clean(i).earliest_to_retain for i in cleans]
    return max((r for r in retained if r), default="the newest one")
