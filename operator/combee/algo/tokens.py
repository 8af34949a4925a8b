"""Token counts without a tokenizer."""

from __future__ import annotations

BYTES_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """Return the estimated tokens of a text: ceil(UTF-8 bytes / 4), a count >= 0.

    The empty text has 0. Lone surrogates count as three bytes each. Source: DESIGN section 6, decisions
    ("Tokens are ceil(UTF-8 bytes / 4)"); the server's reported usage corrects the estimate afterwards. Cost:
    O(len(text)).

    >>> estimate_tokens(""), estimate_tokens("abcd"), estimate_tokens("abcde")
    (0, 1, 2)
    """
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)
