"""Reader leases: while a reader's lease is alive, cleaning keeps the files of its snapshot.

A lease is a file with the completion time of the reader's snapshot. It is renewed and expires as a heartbeat does.
Correctness does not depend on it: files are immutable, so a reader that lost its lease finds a file or does not.

The reader makes its lease durable (L), then lists the timeline (V). A clean reads leases when it is planned, is put in
flight (X7), reads them again in a section (E), and then deletes. Whichever comes first is seen by the other:

    L before the plan          the plan leaves the reader's files out
    L after it, before E       the execution leaves them out
                               (if V comes before E as well, the reader cannot tell, and yields too)
    L after E                  X7 came before E, so V sees the clean in flight or completed: the reader yields

A clean that V sees as requested has not reached X7, so E is still to come: it is harmless.
"""

from __future__ import annotations

from lakebed.errors import CorruptTableError
from lakebed.model.instant import InstantTime, instant_time
from lakebed.storage.confirm import delete_file
from lakebed.transaction.heartbeats import Heartbeat, Timing, load_beats
from lakebed.transaction.ports import Ports
from lakebed.transaction.section import Section

FOLDER = ".hoodie/.leases"
"""The folder of leases; other engines ignore it."""


def start_lease(ports: Ports, timing: Timing, point: InstantTime) -> Heartbeat:
    """Starts a lease on the snapshot at a completion time: durable when this returns, and renewed from then on."""
    owner = ports.tokens()
    lease = Heartbeat(ports, timing, point, owner, path=f"{FOLDER}/{owner}")
    ports.at("lease.L")
    lease.start()
    return lease


def leased_points(section: Section) -> tuple[InstantTime, ...]:
    """The completion times of leased snapshots, oldest first. Removes dead leases.

    So a paused reader finds its lease gone, and cannot renew it after a clean has ignored it.
    """
    points = set()
    for path in delete_dead_leases(section):
        content = section.ports.storage.find(path)
        if content is not None:
            points.add(_decode_point(content, path))
    return tuple(sorted(points))


def delete_dead_leases(section: Section) -> tuple[str, ...]:
    """Removes leases that nobody renews; the paths of the others."""
    beats = load_beats(section.ports, section.timing, FOLDER)
    for name in (name for name, is_alive in beats.items() if not is_alive):
        delete_file(section.ports.storage, f"{FOLDER}/{name}")
    return tuple(f"{FOLDER}/{name}" for name, is_alive in beats.items() if is_alive)


def _decode_point(content: bytes, path: str) -> InstantTime:
    try:
        _, _, point = content.decode().split(" ")
        return instant_time(point)
    except ValueError as error:
        raise CorruptTableError(f"not a lease ({error})", path=path, hint="delete the file") from error
