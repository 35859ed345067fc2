"""The lock of a table, in the kinds that other engines support too, so that all of them exclude each other.

| lock            | kept by                         | excludes besides lakebed   | a crashed holder's is free |
|-----------------|---------------------------------|----------------------------|----------------------------|
| `LocalLock`     | the operating system            | nobody                     | at once                    |
| `StorageLease`  | one object, by compare-and-swap | Hudi's storage-based locks | when the lease runs out    |
| `ZooKeeperLock` | a queue of ephemeral nodes      | Hudi's ZooKeeper locks     | when the session ends      |
| `HudiFileLock`  | one file that is there or not   | Hudi's file-system locks   | never, or once it expires  |
| `InProcessLock` | this process                    | nobody                     | at once                    |
"""

from __future__ import annotations

from lakebed.transaction.locks.choose import choose_lock
from lakebed.transaction.locks.options import LockOptions, parse_lock_options

__all__ = ["LockOptions", "choose_lock", "parse_lock_options"]
