"""Findings about hoodie.properties and its backup.

Apache Hudi changes the file in four steps: copy it to the backup, delete it, write the new one, delete the backup. A
process that dies in between leaves the backup alone, or both, or a file that is half written.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.services.doctor.finding import Finding, Kind, Remedy
from lakebed.services.doctor.look import ConfigFiles
from lakebed.timeline.config import BACKUP, PROPERTIES


def find_config_problems(files: ConfigFiles) -> Iterator[Finding]:
    """What is wrong with the table's configuration."""
    if files.problem is None:
        if files.backup_is_old:
            yield Finding(
                Kind.CONFIG,
                BACKUP,
                "it was left by a process that died when it had just replaced the configuration",
                "",
                Remedy.RESTORE_CONFIG,
                f"delete it under the table's lock: {PROPERTIES} is whole",
            )
    elif files.backup_problem is None:
        yield Finding(
            Kind.CONFIG,
            PROPERTIES,
            f"{files.problem}; its backup is whole: a process died while it replaced the configuration",
            "whoever does not know of backups",
            Remedy.RESTORE_CONFIG,
            "write what the backup says, under the table's lock, then delete the backup",
        )
    else:
        backup = f"its backup is no better: {files.backup_problem}" if files.has_backup else "it has no backup"
        yield Finding(
            Kind.CONFIG,
            PROPERTIES,
            f"{files.problem}; {backup}",
            "every read and every write",
            Remedy.BY_HAND,
            "bring the file back from a copy of the table: nothing else says all that it says",
        )
