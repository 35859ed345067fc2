"""The compiled implementations. Loading a module of this package loads numba: only `kernels.choice` does."""
