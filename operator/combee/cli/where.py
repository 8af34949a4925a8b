"""The flags that say where a command goes and as whom: kubectl's, by kubectl's names."""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from combee.clients.kubernetes.kubeconfig import ONESELF, Identity


@dataclass(frozen=True, slots=True)
class Place:
    """The flags that every command has. None, and an empty identity: what the configuration says."""

    namespace: str | None = None
    context: str | None = None
    identity: Identity = ONESELF

    def flags(self, namespace: str = "") -> str:
        """The same flags for the next command; without a namespace, for one that needs none."""
        words = ["-n", namespace] if namespace else []
        words += ["--context", self.context] if self.context else []
        words += ["--as", self.identity.user] if self.identity.user else []
        words += [word for group in self.identity.groups for word in ("--as-group", group)]
        words += ["--as-uid", self.identity.uid] if self.identity.uid else []
        return "".join(f" {shlex.quote(word)}" for word in words)


ANYWHERE = Place()

FLAGS: dict[str, Any] = {
    "namespace": Annotated[
        str | None,
        typer.Option("--namespace", "-n", metavar="NAME", help="Its namespace; absent: the context's."),
    ],
    "context": Annotated[
        str | None,
        typer.Option(
            "--context", metavar="NAME", help="A context of the kubeconfig; absent: the current one."
        ),
    ],
    "as_user": Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Act as this user; absent: as the kubeconfig says."),
    ],
    "as_group": Annotated[
        list[str] | None,
        typer.Option("--as-group", metavar="NAME", help="And as a member of this group; may be repeated."),
    ],
    "as_uid": Annotated[str | None, typer.Option("--as-uid", metavar="UID", help="And with this uid.")],
}


def with_place(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with these flags; it gets them as its ``place``."""
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.name != "place"]
    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=flag)
        for name, flag in FLAGS.items()
    ]

    @functools.wraps(command)
    def taken(**given: Any) -> None:
        flag = {name: given.pop(name) for name in FLAGS}
        identity = Identity(flag["as_user"] or "", tuple(flag["as_group"] or ()), flag["as_uid"] or "")
        command(place=Place(flag["namespace"], flag["context"], identity), **given)

    taken.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
    return taken
