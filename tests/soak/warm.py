"""Imported once by the process that all clients are forked from: their first write is then as fast as their tenth.

Without it a client spends its short life importing and loading compiled code, and is never killed in a write.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from .register import KEYS, Place, append, create_register, open_for_reading, read_rows
from .services import open_services


def warm_up() -> None:
    """Writes to and reads from throwaway tables of both types, which leaves no thread behind."""
    with tempfile.TemporaryDirectory() as folder:
        for table_type in ("cow", "mor"):
            place = Place(str(Path(folder, table_type)))
            table = create_register(place, table_type, indexes=("record",))
            for number in (1, 2):
                append(place, table, KEYS[:2], number, lambda instant, saw: None)
            if table_type == "mor":
                open_services(place).compact()
            for use_metadata in (True, False):
                read_rows(open_for_reading(place, use_metadata=use_metadata))


warm_up()
