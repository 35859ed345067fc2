"""Frozen values named after the format's concepts, independent of bytes, storage and Spark."""
