"""Loops over buffers, behind one door: each has a plain implementation and a compiled one, with the same results.

A module of this package is a part of the door: it proves that buffers hold together, once per call, and hands them to
the module of the same name in `plain` (Arrow, numpy, Python: the reference) or in `compiled` (numba). `choice` says
which: compiled code is used where it lies ready in this host's cache and the call is large enough to be worth loading
it. Nobody waits for a compiler: `warm` compiles, in a child process of low priority or when it is asked to.
"""
