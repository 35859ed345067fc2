"""Pure codecs: bytes to values or Arrow, and back. No I/O, no clock.

Every `decode_` function takes the file's `path`, for messages only, and raises CorruptTableError for malformed bytes:
never another exception, a hang, or memory out of proportion to the input.
"""
