"""Whether a ConfigMap holds what a run published: each key has its digest in the version's spec. Pure.

The spec of a PlaybookVersion never changes, and few may make one; whoever may write ConfigMaps can delete an
immutable one and make another. So every reader looks at the digests before it takes a text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from combee.errors import UserError


def digest_of_text(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal, as ``sha256sum`` prints it of the file."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def content_digests(data: Mapping[str, str]) -> dict[str, str]:
    """Return the digest of each key of a ConfigMap's data, by key."""
    return {key: digest_of_text(text) for key, text in sorted(data.items())}


def replaced(
    data: Mapping[str, str], digests: Mapping[str, str], keys: Iterable[str] | None = None
) -> tuple[str, ...]:
    """Return the keys that are not as they were published: changed, taken away, or added; all of ``keys``, or
    of what was published and of what is there. A version of an earlier release has no digests: nothing of it
    can be told.

    >>> replaced({"prompt.md": "Answer as you like.", "method": "GEPA"}, content_digests({"prompt.md": "a"}))
    ('method', 'prompt.md')
    """
    looked_at = {*data, *digests} if keys is None else {*keys}
    return differing(
        content_digests({key: data[key] for key in looked_at if key in data}), digests, looked_at
    )


def differing(
    present: Mapping[str, str], digests: Mapping[str, str], keys: Iterable[str] | None = None
) -> tuple[str, ...]:
    """Return what ``replaced`` does, of the digests of what is there."""
    looked_at = {*present, *digests} if keys is None else {*keys}
    return tuple(sorted(key for key in looked_at if present.get(key) != digests.get(key))) if digests else ()


def refuse_replaced(
    data: Mapping[str, str], digests: Mapping[str, str], where: str, keys: Iterable[str] | None = None
) -> None:
    """Raise UserError where a ConfigMap does not hold what was published. ``where`` names it."""
    if wrong := replaced(data, digests, keys):
        raise UserError(
            f"{', '.join(wrong)} was replaced: spec.contentDigests of the version says otherwise",
            where=where,
            fix="See who may write ConfigMaps here; the operator restores it where it can, with an event",
        )
