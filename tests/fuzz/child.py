"""A process that decodes many inputs. It may crash, hang or run out of memory: its parent knows which input did it."""

from __future__ import annotations

import json
import mmap
import random
import resource
import signal
import struct
import sys
from importlib import import_module
from typing import Any

from lakebed.kernels import choice

from .codec import Codec
from .outcome import REFUSED, are_same, is_typed

SECONDS_MAX = 2.0
MEMORY_BYTES_MAX = 256 << 20
"""By which memory in use may grow. Memory that is only asked for, never written to, does not count."""
_ADDRESS_BYTES_MAX = 1 << 30
"""By which memory that was asked for may grow: with more, the machine would be at risk."""
NAMES = {"hfile": "hfile", "avro": "avro", "log": "log", "parquet": "parquet", "key-table": "key_table"}
"""The module of each codec."""


def find_codec(name: str) -> Codec:
    """The codec of a name."""
    codec: Codec = import_module(f"{__package__}.{NAMES[name]}").CODEC
    return codec


def input_of(codec: Codec, name: str, seed: int, number: int) -> Any:
    """Input `number` of a run: the same wherever and whenever it is made."""
    return codec.make(random.Random(f"{name} {seed} {number}"))


def check(codec: Codec, case: Any) -> tuple[str | None, bool]:
    """What is wrong with how an input is decoded, None if nothing is; and whether it was refused."""
    results = []
    for implementation in codec.implementations:
        with choice.forced(implementation):
            try:
                results.append(codec.decode(case))
            except Exception as error:
                if not is_typed(error):
                    return f"{implementation} raised {error!r}", False
                results.append(REFUSED)
    refused = [result is REFUSED for result in results]
    if any(refused):
        which = dict(zip(codec.implementations, refused, strict=True))
        return None if all(refused) else f"implementations differ, refused: {which}", True
    return None if are_same(results[0], results[-1]) else f"implementations differ: {results!r:.2000}", False


def main() -> None:
    """Decode inputs `first` to before `last`; tell of failures on standard output, and of progress in a file."""
    name, seed, first, last, progress = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
    codec, refused = find_codec(name), 0
    for number in range(20):  # Whatever is loaded when it is needed is loaded before memory is counted.
        check(codec, input_of(codec, name, seed, -1 - number))
    with open(progress, "r+b") as file:
        at = mmap.mmap(file.fileno(), 8)
    peak = _limit_memory()
    for number in range(first, last):
        at[:] = struct.pack("<q", number)
        case = input_of(codec, name, seed, number)
        signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)  # Ends the process: time of the processor, not of the wall.
        failure, is_refused = check(codec, case)
        refused += is_refused
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - peak
        if failure is None and grown > MEMORY_BYTES_MAX:
            peak, failure = peak + grown, f"memory grew by {grown >> 20} MiB"
        if failure is not None:
            _tell({"number": number, "failure": failure})
    _tell({"refused": refused})


def _tell(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _limit_memory() -> int:
    """Bound what can be asked for from now on; the most memory that was in use until now, in bytes."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _ADDRESS_BYTES_MAX, size + _ADDRESS_BYTES_MAX))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
