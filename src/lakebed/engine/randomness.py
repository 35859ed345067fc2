"""Names that nobody else has: the one place where chance comes in."""

from __future__ import annotations

import secrets
import uuid


def new_token() -> str:
    """Letters and digits that no other process draws."""
    return secrets.token_hex(8)


def new_file_id() -> str:
    """The id of a new file group."""
    return f"{uuid.uuid4()}-0"  # noqa: TID251 - this is the source that is handed in


def new_write_token(task: int) -> str:
    """A write token that no other attempt at the task has: three numbers, the first of them the task's."""
    return f"{task}-{secrets.randbelow(1 << 30)}-{secrets.randbelow(1 << 30)}"
