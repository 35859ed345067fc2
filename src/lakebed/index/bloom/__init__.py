"""Bloom filters of base files in the metadata table: which files may hold a key."""
