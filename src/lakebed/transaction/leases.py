"""Reader leases: what a reader at a completion time needs is left alone by cleaning while its lease is alive.

A lease is a file that says where the reader stands. It beats as a heartbeat does, and is taken for dead by the same
rule. Nothing that is right depends on it: files never change, so a reader that lost its lease finds a file or does not.

The reader makes its lease durable (L), then looks at the timeline (V). A clean looks at leases when it is planned, is
put in flight (X7), looks at them again in a section (E), and then deletes. Whoever comes first is seen by the other:

    L before the plan          the plan leaves the reader's files out
    L after it, before E       the execution leaves them out
                               (if V comes before E, too, the reader cannot tell, and steps back all the same)
    L after E                  X7 came before E, so V shows the clean in flight or completed: the reader steps back

A clean that V shows as requested has not come to X7, so it has E still before it: it is no danger.
"""

from __future__ import annotations

from lakebed.errors import CorruptTableError
from lakebed.model.instant import InstantTime, instant_time
from lakebed.storage.confirm import delete_file
from lakebed.transaction.heartbeats import Heartbeat, Timing, load_beats
from lakebed.transaction.ports import Ports
from lakebed.transaction.section import Section

FOLDER = ".hoodie/.leases"
"""Other engines do not look there."""


def start_lease(ports: Ports, timing: Timing, point: InstantTime) -> Heartbeat:
    """A lease on all that had completed at a completion time: there when this returns, and renewed from then on."""
    owner = ports.tokens()
    lease = Heartbeat(ports, timing, point, owner, path=f"{FOLDER}/{owner}")
    ports.at("lease.L")
    lease.start()
    return lease


def leased_points(section: Section) -> tuple[InstantTime, ...]:
    """The completion times at which readers stand, oldest first. Leases that are dead are removed: they are over.

    A reader that was paused finds its lease gone, and cannot renew it after a clean has gone by without it.
    """
    points = set()
    for name, is_alive in load_beats(section.ports, section.timing, FOLDER).items():
        path = f"{FOLDER}/{name}"
        if not is_alive:
            delete_file(section.ports.storage, path)
            continue
        content = section.ports.storage.find(path)
        if content is not None:
            points.add(_decode_point(content, path))
    return tuple(sorted(points))


def _decode_point(content: bytes, path: str) -> InstantTime:
    try:
        _, _, point = content.decode().split(" ")
        return instant_time(point)
    except ValueError as error:
        raise CorruptTableError(f"not a lease ({error})", path=path, hint="delete the file") from error
