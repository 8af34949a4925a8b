"""How a publish step tells the operator what it published: the digest of each key, in its summary. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from combee.plan.playbook.authentic import content_digests

_PREFIX = "sha256/"


def published_digests(data: Mapping[str, str]) -> dict[str, str]:
    """Return the outputs that tell the digests of a published ConfigMap's data."""
    return {f"{_PREFIX}{key}": digest for key, digest in content_digests(data).items()}


def told_digests(outputs: Mapping[str, str]) -> dict[str, str]:
    """Return the digests that a publish step told, by key; none of a step of an earlier release.

    >>> told_digests({"configMap": "formula-1", **published_digests({"prompt.md": ""})})
    {'prompt.md': 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'}
    """
    digests = {name: digest for name, digest in outputs.items() if name.startswith(_PREFIX)}
    return {name.removeprefix(_PREFIX): digest for name, digest in digests.items()}
