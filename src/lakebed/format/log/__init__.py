"""Log files: framing of blocks, and what each kind of block holds."""
