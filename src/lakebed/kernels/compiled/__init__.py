"""The compiled implementations. Importing a module of this package loads numba: only `choice` and `warm` do."""
