"""Fuzzing of decoders beyond their checksums.

Damage is done to the inner layers of a file; then lengths, offsets and checksums around it are made right again. See
`python -m tests.fuzz --help`; `test_fuzz.py` runs a small part with all other tests.
"""
