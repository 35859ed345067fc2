"""JSON objects in files of the table."""

from __future__ import annotations

import json
from typing import Any

from lakebed.format.guard import decoding


def decode_json_object(data: bytes, *, path: str, what: str) -> dict[str, Any]:
    """The JSON object in `data`; `what` names it in messages. All its strings can be encoded as UTF-8."""
    with decoding(path, what):
        text = data.decode("utf-8")
        value = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError(f"a JSON object is expected, not {type(value).__name__}")
        if "\\u" in text:
            # JSON can spell half a surrogate pair, which no later consumer could encode.
            json.dumps(value, ensure_ascii=False).encode()
        return value


def encode_json_object(value: dict[str, Any]) -> bytes:
    """`value` as indented JSON text, keys in the order given."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode()
