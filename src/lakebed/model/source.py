"""Random access to bytes, so that codecs can read parts of a file wherever it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lakebed.errors import CorruptTableError


class ByteSource(Protocol):
    """A file of known size that can be read in ranges. `path` is for messages."""

    @property
    def path(self) -> str:
        """The file's name, for messages."""
        ...

    @property
    def size(self) -> int:
        """The file's length in bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; a range outside the file raises CorruptTableError."""
        ...


@dataclass(frozen=True, slots=True)
class BytesSource:
    """A file that is already in memory."""

    data: bytes | memoryview
    path: str = "<memory>"

    @property
    def size(self) -> int:
        """The file's length in bytes."""
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`."""
        if offset < 0 or length < 0 or offset + length > len(self.data):
            raise CorruptTableError(
                f"{length} bytes expected, the file has {len(self.data)}", path=self.path, offset=offset
            )
        return bytes(self.data[offset : offset + length])
