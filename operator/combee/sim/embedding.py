"""Embeddings: a deterministic bag of hashed n-grams, unit length."""

from __future__ import annotations

import base64
import re
import zlib
from itertools import pairwise

import numpy as np
import numpy.typing as npt

DIMENSIONS = 256
_WORD = re.compile(r"\w+")


def embed(text: str, dimensions: int = DIMENSIONS) -> npt.NDArray[np.float32]:
    """Return a vector of shape (dimensions,), float32, of length 1 (the first axis for an empty text).

    Each word and each pair of words is hashed to one signed axis.
    """
    words = [w.encode("utf-8", "surrogatepass") for w in _WORD.findall(text.casefold())]
    vector = np.zeros(dimensions, dtype=np.float64)
    for gram in (*words, *(a + b" " + b for a, b in pairwise(words))):
        hashed = zlib.crc32(gram)
        vector[(hashed >> 1) % dimensions] += 1.0 if hashed & 1 else -1.0
    length = float(np.sqrt(vector @ vector))
    if length == 0.0:
        vector[0] = length = 1.0
    return (vector / length).astype(np.float32)


def encoded(vector: npt.NDArray[np.float32], form: str) -> list[float] | str:
    """Return a list of numbers, or base64 of little-endian float32 (what OpenAI's client asks for)."""
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return [float(x) for x in vector]
