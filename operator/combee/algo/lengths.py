"""In which order calls of different lengths should begin.

A stage ends with its last call, so a long one that begins last keeps the places of all others empty. Source:
Graham 1969 (longest processing time first).
"""

from __future__ import annotations

from collections.abc import Sequence


def bucket(tokens: int) -> int:
    """Return the bucket of a length: lengths of one bucket differ by less than a factor of two.

    >>> [bucket(tokens) for tokens in (1, 2, 3, 4, 1000, 1023, 1024)]
    [1, 2, 2, 3, 10, 10, 11]
    """
    return tokens.bit_length()


def longest_first(lengths: Sequence[int]) -> list[int]:
    """Return the positions of the lengths in the order in which such calls should begin. Those of one bucket
    keep their order. Cost: O(n log n).

    >>> longest_first([100, 900, 110, 1000])
    [1, 3, 0, 2]
    """
    return sorted(range(len(lengths)), key=lambda position: -bucket(lengths[position]))
