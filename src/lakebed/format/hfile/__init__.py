"""HFile, the sorted key-value file of the metadata table: whole files, and the content of HFile log blocks.

`HFile` finds keys by a few ranged reads. `decode_hfile` and `encode_hfile` turn whole files into Arrow and back.
"""

from lakebed.format.hfile.arrow import decode_hfile, key_order
from lakebed.format.hfile.reader import HFile
from lakebed.format.hfile.writer import best_packing, encode_hfile

__all__ = ["HFile", "best_packing", "decode_hfile", "encode_hfile", "key_order"]
