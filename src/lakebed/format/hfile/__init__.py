"""HFile, the sorted key-value file of the metadata table: whole files, and the content of HFile log blocks.

`HFile` finds keys where the file lies and needs neither pyarrow nor numba. `decode_hfile` and `encode_hfile` turn
whole files into Arrow and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.format.hfile.reader import HFile

if TYPE_CHECKING:
    from lakebed.format.hfile.arrow import decode_hfile
    from lakebed.format.hfile.order import key_order
    from lakebed.format.hfile.writer import best_packing, encode_hfile

__all__ = ["HFile", "best_packing", "decode_hfile", "encode_hfile", "key_order"]

_LAZY = {"best_packing": "writer", "decode_hfile": "arrow", "encode_hfile": "writer", "key_order": "order"}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
