"""The flags that say where a command goes and as whom: kubectl's, by kubectl's names."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from combee.cli.options import optional, with_flags
from combee.clients.kubernetes.kubeconfig import ONESELF, Identity


@dataclass(frozen=True, slots=True)
class Place:
    """The flags that every command has. None and an empty identity stand for the configuration's."""

    namespace: str | None = None
    context: str | None = None
    identity: Identity = ONESELF

    def flags(self, namespace: str = "") -> str:
        """Return the same flags for the next command; without a namespace, for one that needs none."""
        words = ["-n", namespace] if namespace else []
        words += ["--context", self.context] if self.context else []
        words += ["--as", self.identity.user] if self.identity.user else []
        words += [word for group in self.identity.groups for word in ("--as-group", group)]
        words += ["--as-uid", self.identity.uid] if self.identity.uid else []
        return "".join(f" {shlex.quote(word)}" for word in words)


ANYWHERE = Place()

FLAGS = (
    optional("namespace", str, "--namespace -n", "NAME", "Its namespace; absent: the context's."),
    optional("context", str, "--context", "NAME", "A context of the kubeconfig; absent: the current one."),
    optional("as_user", str, "--as", "NAME", "Act as this user; absent: as the kubeconfig says."),
    optional("as_group", list[str], "--as-group", "NAME", "And as a member of this group; may be repeated."),
    optional("as_uid", str, "--as-uid", "UID", "And with this uid."),
)


def _place(
    namespace: str | None,
    context: str | None,
    as_user: str | None,
    as_group: list[str] | None,
    as_uid: str | None,
) -> Place:
    return Place(namespace, context, Identity(as_user or "", tuple(as_group or ()), as_uid or ""))


with_place = with_flags("place", FLAGS, _place)
