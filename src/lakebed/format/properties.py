"""Java properties files: hoodie.properties and `.hoodie_partition_metadata`, which marks a folder as a partition.

Files are ISO-8859-1 with `\\uXXXX` for everything outside it, one UTF-16 unit per escape. lakebed must read the same
as Apache Hudi, so bytes above 0x7F are never decoded as UTF-8.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakebed.errors import CorruptTableError
from lakebed.format.guard import decoding
from lakebed.model.instant import InstantTime, instant_time

_WHITE = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u.{0,4}|.|\Z)", re.DOTALL)
_UNICODE = re.compile(r"u[0-9A-Fa-f]{4}")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

_TO_ESCAPE = re.compile(r"[\\=:#!\t\n\r\f]|[^ -~]")
_CONTROL_LETTERS = {control: letter for letter, control in _CONTROLS.items()}


def decode_properties(data: bytes, *, path: str) -> dict[str, str]:
    """The properties in `data`, in file order; of a repeated key, the last value."""
    with decoding(path, "properties"):
        return dict(_decode_line(line) for line in _logical_lines(data.decode("latin-1")))


def encode_properties(properties: Mapping[str, str], *, comment: str, date: str) -> bytes:
    """Properties text with the two comment lines that Java writes first, keys in the order given."""
    lines = [f"#{_one_line(comment)}", f"#{_one_line(date)}"]
    lines += [f"{_encode_key(key)}={_encode_value(value)}" for key, value in properties.items()]
    return ("\n".join(lines) + "\n").encode("latin-1")


def table_checksum(properties: Mapping[str, str]) -> int:
    """The correct value of `hoodie.table.checksum`: the CRC-32 of `<database>.<table name>`."""
    database, table = properties.get("hoodie.database.name", ""), properties["hoodie.table.name"]
    return zlib.crc32(f"{database}.{table}".encode())


def check_table_checksum(properties: Mapping[str, str], *, path: str) -> None:
    """Raises CorruptTableError if the properties carry a checksum and it is wrong."""
    stated = properties.get("hoodie.table.checksum")
    if stated is None:
        return
    if "hoodie.table.name" not in properties:
        raise CorruptTableError("property hoodie.table.name is missing", path=path)
    computed = table_checksum(properties)
    if stated.strip() != str(computed):
        raise CorruptTableError(f"hoodie.table.checksum is {stated!r}, computed {computed}", path=path)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines with their continuations joined, without blank lines and comments."""
    lines = iter(_LINE_END.split(text))
    for line in lines:
        line = line.lstrip(_WHITE)
        if not line or line[0] in "#!":
            continue
        pieces = [line]
        # A comment cannot be continued, and a line that continues another cannot be a comment.
        while _CONTINUED.search(pieces[-1]):
            pieces[-1] = pieces[-1][:-1]
            pieces.append(next(lines, "").lstrip(_WHITE))
        yield "".join(pieces)


def _decode_line(line: str) -> tuple[str, str]:
    key = _KEY.match(line)
    assert key is not None, "the pattern matches the empty string"
    separator = _SEPARATOR.match(line, key.end())
    assert separator is not None, "the pattern matches the empty string"
    return _unescape(key.group()), _unescape(line[separator.end() :])


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    units = _ESCAPE.sub(lambda escape: _unescape_one(escape.group(1)), text)
    # Characters beyond U+FFFF are two escapes; half of such a pair is an error.
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _unescape_one(letters: str) -> str:
    if not letters.startswith("u"):
        return _CONTROLS.get(letters, letters)
    if not _UNICODE.fullmatch(letters):
        raise ValueError(f"malformed escape \\{letters}")
    return chr(int(letters[1:], 16))


def _encode_key(key: str) -> str:
    return _encode_text(key).replace(" ", "\\ ")


def _encode_value(value: str) -> str:
    # Only a leading space would be lost on reading.
    text = _encode_text(value)
    return f"\\{text}" if text.startswith(" ") else text


def _encode_text(text: str) -> str:
    return _TO_ESCAPE.sub(lambda found: _escape_one(found.group()), text)


def _escape_one(character: str) -> str:
    if character in _CONTROL_LETTERS:
        return f"\\{_CONTROL_LETTERS[character]}"
    if " " <= character <= "~":
        return f"\\{character}"
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def _one_line(comment: str) -> str:
    assert comment.isascii(), comment
    assert not _LINE_END.search(comment), comment
    return comment


PARTITION_METAFILE = ".hoodie_partition_metadata"


@dataclass(frozen=True, slots=True)
class PartitionMetafile:
    """The instant that created a partition, and its depth in folders below the table."""

    created_at: InstantTime
    depth: int


def decode_partition_metafile(data: bytes, *, path: str) -> PartitionMetafile:
    """The content of a partition metafile in its text form."""
    properties = decode_properties(data, path=path)
    with decoding(path, "partition metafile"):
        depth = properties["partitionDepth"].strip()
        if not (depth.isascii() and depth.isdigit()):
            raise ValueError(f"partitionDepth is {depth!r}")
        return PartitionMetafile(instant_time(properties["commitTime"].strip()), int(depth))


def encode_partition_metafile(metafile: PartitionMetafile, *, date: str) -> bytes:
    """The text form of a partition metafile; `date` goes into its second comment line."""
    properties = {"commitTime": metafile.created_at, "partitionDepth": str(metafile.depth)}
    return encode_properties(properties, comment="partition metadata", date=date)
