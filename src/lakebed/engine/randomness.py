"""Random names: the only source of randomness."""

from __future__ import annotations

import secrets
import uuid


def new_token() -> str:
    """A unique token of letters and digits."""
    return secrets.token_hex(8)


def new_file_id() -> str:
    """The id of a new file group."""
    return f"{uuid.uuid4()}-0"  # noqa: TID251 - this is the source that is handed in


def new_write_token(task: int) -> str:
    """A write token, unique to one attempt at a task: three numbers, the first is the task's."""
    return f"{task}-{secrets.randbelow(1 << 30)}-{secrets.randbelow(1 << 30)}"
