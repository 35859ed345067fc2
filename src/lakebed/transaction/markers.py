"""Markers record the files that an instant is about to write, so that a rollback finds them.

Apache Hudi keeps markers in two ways. Ours are of the kind that its timeline server writes: a folder per instant with
files that list one marker per line. Each task writes one such file for all files that it is about to make.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from lakebed.format.guard import check_files, decoding
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage
from lakebed.storage.confirm import create_file, delete_file

FOLDER = ".hoodie/.temp"
"""Here every instant that is written has a folder for its markers."""
_KIND_FILE = "MARKERS.type"
_KIND = b"TIMELINE_SERVER_BASED"
_SUFFIX = ".marker."
_LINE_END = re.compile(r"\r?\n")
"""Line ends in marker files; partition names may contain other characters that Python treats as line ends."""


def marker_folder(instant: InstantTime) -> str:
    """The folder of an instant's markers."""
    return f"{FOLDER}/{instant}"


def open_markers(storage: Storage, instant: InstantTime) -> None:
    """Writes the file that declares the kind of an instant's markers, before the first marker."""
    create_file(storage, f"{marker_folder(instant)}/{_KIND_FILE}", _KIND)


def write_markers(storage: Storage, instant: InstantTime, paths: Iterable[str], token: str) -> None:
    """Records files that a task is about to create; `token` is unique per attempt of the task."""
    lines = "".join(f"{path}{_SUFFIX}CREATE\n" for path in paths)
    create_file(storage, f"{marker_folder(instant)}/MARKERS{token}", lines.encode())


def load_markers(storage: Storage, instant: InstantTime) -> frozenset[str]:
    """Paths of the files that an instant may have written, from markers of either kind."""
    folder = f"{marker_folder(instant)}/"
    found: set[str] = set()
    for listed in storage.list(marker_folder(instant), recursive=True):
        name = listed.path.removeprefix(folder)
        if _SUFFIX in name:
            found.add(name.rpartition(_SUFFIX)[0])
        elif name.startswith("MARKERS") and name != _KIND_FILE and not name.endswith(".crc"):
            with decoding(listed.path, "markers"):
                lines = _LINE_END.split((storage.find(listed.path) or b"").decode())
            found.update(line.rpartition(_SUFFIX)[0] for line in lines if _SUFFIX in line)
    # What is marked may be deleted.
    for path in found:
        partition, _, name = path.rpartition("/")
        check_files({partition: (name,)}, path=folder)
    return frozenset(found)


def drop_markers(storage: Storage, instant: InstantTime) -> None:
    """Removes everything in the marker folder of an instant, the file that declares the kind last."""
    files = [listed.path for listed in storage.list(marker_folder(instant), recursive=True)]
    for path in sorted(files, key=lambda path: path.endswith(_KIND_FILE)):
        delete_file(storage, path)


def drop_markers_of(storage: Storage, instants: Collection[InstantTime]) -> frozenset[InstantTime]:
    """Removes the markers of finished instants; returns those that had any."""
    folders = storage.list_folders(FOLDER) if instants else ()
    marked = frozenset(InstantTime(folder.rpartition("/")[2]) for folder in folders) & frozenset(instants)
    for instant in sorted(marked):
        drop_markers(storage, instant)
    return marked
