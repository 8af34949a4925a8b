"""YAML as manifests need it: plain JSON values, every surprise of YAML refused.

Scalars follow YAML 1.2's core schema (so a bare ``Off`` is text, ``010`` and ``1_000`` are not
numbers, a date is text). Refused, with the line: duplicate keys, keys that are not text, tags, half a
character, aliases that contain themselves or that expand to very much, deep nesting, oversized files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import yaml

from combee.errors import ManifestError

MAX_MANIFEST_BYTES = 256 * 1024
MAX_NODES = 20_000
"""values of one file after aliases are expanded."""
MAX_DEPTH = 40

Path = tuple[str | int, ...]
_TAG = "tag:yaml.org,2002:"
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_MERGE = re.compile(r"<<\Z")


class _Loader(yaml.SafeLoader):
    """A loader that composes nodes only; its resolvers are YAML 1.2's."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _name, _pattern, _first in (
    ("null", _NULL, [*"~nN", ""]),
    ("bool", _BOOL, [*"tTfF"]),
    ("int", _INT, [*"-+0123456789"]),
    ("float", _FLOAT, [*"-+.0123456789"]),
    ("merge", _MERGE, ["<"]),
):
    _Loader.add_implicit_resolver(_TAG + _name, _pattern, _first)


@dataclass
class Document:
    """One document: ``value`` of plain dicts, lists and scalars, and the line (1-based) of each path."""

    value: object
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """Return the line of ``path``, or of the nearest part around it that is written."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_yaml(text: str, where: str) -> list[Document]:
    """Return all non-empty documents of ``text``. Cost: linear. Raises ManifestError on anything unfit."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_MANIFEST_BYTES:
        raise ManifestError(
            f"the file has {size} bytes, more than the {MAX_MANIFEST_BYTES} a manifest may have",
            where=where,
            fix="Is this the right file? Data belong in files of their own, named by task.data.",
        )
    try:
        nodes = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        problem = error.problem or error.context or "cannot be read"
        raise ManifestError(
            f"not valid YAML: {problem}", where=place, fix="Check indentation, colons and quotes there."
        ) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else "cannot be read"
        raise ManifestError(
            f"not valid YAML: {reason}", where=where, fix="Save the file as UTF-8 text."
        ) from None
    except RecursionError:
        raise _too_deep(where) from None
    builder = _Builder(where)
    return [builder.document(node) for node in nodes if node is not None and not _is_null(node)]


def _is_null(node: yaml.Node) -> bool:
    return node.tag == _TAG + "null"


def _too_deep(where: str) -> ManifestError:
    return ManifestError("nested too deeply", where=where, fix=f"A manifest has at most {MAX_DEPTH} levels.")


class _Builder:
    """A builder that turns nodes into values, counting them over all documents of a file."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._nodes = 0
        self._open: set[int] = set()
        self._lines: dict[Path, int] = {}

    def document(self, node: yaml.Node) -> Document:
        self._lines = {}
        value = self._value(node, ())
        return Document(value, self._lines)

    def _refuse(self, node: yaml.Node, what: str, fix: str) -> ManifestError:
        return ManifestError(what, where=f"{self._where}:{node.start_mark.line + 1}", fix=fix)

    def _value(self, node: yaml.Node, path: Path) -> object:
        self._nodes += 1
        self._lines.setdefault(path, node.start_mark.line + 1)
        if self._nodes > MAX_NODES:
            raise self._refuse(
                node,
                f"more than {MAX_NODES} values once aliases are expanded",
                "Write the manifest without aliases.",
            )
        if len(path) > MAX_DEPTH:
            raise _too_deep(f"{self._where}:{node.start_mark.line + 1}")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            raise self._refuse(node, "an alias contains itself", "Write the manifest without aliases.")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
                return [self._value(item, (*path, i)) for i, item in enumerate(node.value)]
            if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, path)
        finally:
            self._open.discard(id(node))
        raise self._refuse(node, f"the tag {node.tag} is not allowed", "Remove the tag.")

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        own: dict[str, object] = {}
        merged: dict[str, object] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                for key, value in self._merged(value_node, path).items():
                    merged.setdefault(key, value)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._refuse(key_node, "a key is a list or mapping", "Keys are plain words.")
            name = self._scalar(key_node)
            if not isinstance(name, str):
                raise self._refuse(key_node, f"the key {key_node.value!r} is not text", "Put it in quotes.")
            if name in own:
                raise self._refuse(key_node, f"the key {name!r} is given twice", "Keep one of the two.")
            self._lines[*path, name] = key_node.start_mark.line + 1
            own[name] = self._value(value_node, (*path, name))
        return {**merged, **own}

    def _merged(self, node: yaml.Node, path: Path) -> dict[str, object]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, object] = {}
        for source in sources:
            value = self._value(source, path) if isinstance(source, yaml.MappingNode) else None
            if not isinstance(value, dict):
                raise self._refuse(source, "'<<' merges something that is no mapping", "Merge mappings only.")
            result = {**value, **result}
        return result

    def _scalar(self, node: yaml.ScalarNode) -> object:
        text = node.value
        tag = node.tag.removeprefix(_TAG)
        if tag == "str":
            return text if text.isascii() else self._joined(node)
        if tag == "null" and _NULL.match(text):
            return None
        if tag == "bool" and _BOOL.match(text):
            return text.lower() == "true"
        if tag in ("int", "float") and len(text) <= 40:
            if tag == "int" and _INT.match(text):
                return int(text)
            if tag == "float" and _FLOAT.match(text):
                return float(text)
        elif tag in ("int", "float"):
            raise self._refuse(
                node, "a number with more than 40 digits", "Write a shorter number, or quote it."
            )
        raise self._refuse(node, f"{text[:60]!r} with the tag {node.tag} is not allowed", "Remove the tag.")

    def _joined(self, node: yaml.ScalarNode) -> str:
        """Return a text with the characters that JSON writes in two halves as what they are."""
        try:
            return str(node.value).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise self._refuse(node, "half a character", "Write both halves, or the character.") from None
