"""Bloom filters of base files: which files may hold a key."""
