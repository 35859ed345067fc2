"""Findings about hoodie.properties and its backup.

Apache Hudi changes the file in four steps: copy it to the backup, delete it, write the new one, delete the backup. A
process that dies in between leaves only the backup, or both, or a half-written file.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.services.doctor.finding import Finding, FindingKind, Remedy
from lakebed.services.doctor.look import ConfigFiles
from lakebed.timeline.config import BACKUP, PROPERTIES


def find_config_problems(files: ConfigFiles) -> Iterator[Finding]:
    """Findings about the table's configuration."""
    if files.problem is None:
        if files.backup_is_old:
            yield Finding(
                FindingKind.CONFIG,
                BACKUP,
                "left by a process that died right after it replaced the configuration",
                "",
                Remedy.RESTORE_CONFIG,
                f"delete it under the table lock: {PROPERTIES} is intact",
            )
    elif files.backup_problem is None:
        yield Finding(
            FindingKind.CONFIG,
            PROPERTIES,
            f"{files.problem}; its backup is intact: a process died while it replaced the configuration",
            "engines that do not read the backup",
            Remedy.RESTORE_CONFIG,
            "restore the file from the backup, under the table lock, then delete the backup",
        )
    else:
        backup = f"its backup is unusable too: {files.backup_problem}" if files.has_backup else "it has no backup"
        yield Finding(
            FindingKind.CONFIG,
            PROPERTIES,
            f"{files.problem}; {backup}",
            "every read and every write",
            Remedy.BY_HAND,
            "restore the file from a copy of the table: its content is not stored anywhere else",
        )
