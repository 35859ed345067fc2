"""The layout of a record in a data block of an HFile.

int32 key length, int32 value length, int16 row length, row, 10-byte suffix, value, one byte 0
"""

from __future__ import annotations

import struct

RECORD_HEADER = struct.Struct(">iih")
RECORD_HEADER_BYTES = RECORD_HEADER.size
KEY_SUFFIX = bytes.fromhex("007fffffffffffffff04")
"""Column family length 0, the largest timestamp, and the type "put" end every key."""
RECORD_BYTES = RECORD_HEADER_BYTES + len(KEY_SUFFIX) + 1
"""What a record takes beyond its row and value."""
RECORD_BYTES_MIN = 11
"""The shortest record: its lengths, an empty row without a suffix, an empty value, and the last byte."""
ROW_BYTES_MAX = 0x7FFF
