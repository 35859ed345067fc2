"""Loops over buffers behind one interface: each has a plain and a compiled implementation with the same results.

A module of this package validates the buffers of a call and passes them to the module of the same name in `plain`
(Arrow, numpy, Python: the reference) or in `compiled` (numba). `choice` decides: compiled code runs if it is in this
host's cache and the call is large enough to be worth loading it. No call waits for a compiler: `warm` compiles, in a
child process of low priority or on request.
"""
