"""Base methods by the manifest's ``method.type``: those of this version, and what installed packages declare
as ``combee.methods``. Nothing else names one of them.

A method's code is loaded when it is first asked for: a command that only shows texts loads no mathematics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from combee import extensions
from combee.api.method_options import Retrieval
from combee.api.run import RunSpec
from combee.errors import BugError
from combee.methods.base import Method
from combee.methods.diff import Diff, DiffLine, diff_lines, plain_lines
from combee.methods.life import Life


def _ace(spec: RunSpec | None) -> Method[Any]:
    from combee.methods.ace import AceMethod

    if spec is None:
        return AceMethod()
    options = spec.method
    return AceMethod(
        reasoning=options.reasoning,
        tell_refused=options.tell_refused,
        programs=options.programs,
        model=spec.model_name("task") if "task" in spec.roles_in_use() else "",
        forgotten=spec.task.data.forgotten,
    )


def _gepa(spec: RunSpec | None) -> Method[Any]:
    from combee.methods.gepa import GepaMethod, terms_of

    return GepaMethod() if spec is None else GepaMethod(terms_of(spec))


def _textgrad(spec: RunSpec | None) -> Method[Any]:
    from combee.methods.textgrad import TextGradMethod, terms_of

    return TextGradMethod() if spec is None else TextGradMethod(terms_of(spec))


def _mipro(spec: RunSpec | None) -> Method[Any]:
    from combee.methods.mipro import MiproMethod, terms_of

    return MiproMethod() if spec is None else MiproMethod(terms_of(spec))


Maker = Callable[[RunSpec | None], Method[Any]]
METHODS: dict[str, Maker] = {"ACE": _ace, "GEPA": _gepa, "TextGrad": _textgrad, "MIPRO": _mipro}
"""Each makes the method of a run; without one, what reads and shows its texts."""
UNNAMED = "ACE"
"""The method of a published text that does not say which one made it."""


def method_of(spec: RunSpec) -> Method[Any]:
    """Return the method of a run, with its options."""
    if (maker := _maker(spec.method.type)) is None:
        raise BugError(f"no base method {spec.method.type}", where="spec.method.type")
    return maker(spec)


def _maker(type: str) -> Maker | None:
    if type in METHODS or type not in extensions.names(extensions.METHODS):
        return METHODS.get(type)
    maker: Maker = extensions.load(extensions.METHODS, type)
    return maker


def served_text(text: str, method: str = "") -> str:
    """Return a published text by ``method`` as a service's model is shown it; an unknown method's as it
    is."""
    maker = _maker(method or UNNAMED)
    return maker(None).served_text(text) if maker else text


def serving(text: str, retrieval: Retrieval, method: str = "") -> Callable[[str], str]:
    """Return what takes a question and returns a published text as a service's model is shown it then."""
    if (maker := _maker(method or UNNAMED)) is None:
        return lambda question: text
    made = maker(None)
    chosen = made.choosing(text, retrieval)
    return lambda question: made.served_text(chosen(question))


def lines_of(text: str, method: str = "") -> list[DiffLine]:
    """Return every line of a published text as its ``method`` shows it to people; a heading has no text."""
    maker = _maker(method or UNNAMED)
    return maker(None).lines_of(text) if maker else plain_lines(text)


def life_of(
    artifact: bytes, entry: str, *, method: str = "", shown: str, history: Sequence[bytes] = ()
) -> Life | None:
    """Return the life of an entry of an artifact by ``method``; see ``Method.life``. Raises DataError for
    bytes that are no artifact."""
    maker = _maker(method or UNNAMED)
    if maker is None:
        return None
    made = maker(None)
    return made.life(
        made.from_json(artifact), entry, shown=shown, history=[made.from_json(one) for one in history]
    )


def diff_texts(before: str, after: str, methods: tuple[str, str] = ("", "")) -> Diff:
    """Return what changed between two published texts, line by line where two ``methods`` made them."""
    old, new = (name or UNNAMED for name in methods)
    maker = _maker(new) if old == new else None
    return maker(None).diff_texts(before, after) if maker else diff_lines(before, after)
