"""Pure mathematics of parallel prompt learning: no I/O, clock, environment or global randomness.

Everything is a function of its arguments and a seed, equal in every process and on every machine.
"""
