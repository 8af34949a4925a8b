"""Make matplotlib's SVG fit to stand inside a page: small, themed by CSS classes, free of inline style.

matplotlib writes fixed colours in ``style`` attributes. Figures are drawn with the stand-in colours of `INK`
and its siblings; here each becomes a class (``f-ink`` fills, ``s-ink`` strokes), so that the page's style
sheet decides on the colours, dark mode included, and a strict content security policy without inline style
holds.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

INK, MUTED, GRID, FIRST, SECOND = (f"#0{n}0{n}0{n}" for n in range(1, 6))
_NAMES = {INK: "ink", MUTED: "muted", GRID: "grid", FIRST: "first", SECOND: "second"}
_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}"
_DROPPED_PROPERTIES = {"font", "font-family", "font-style", "font-weight", "font-variant", "font-stretch"}
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def inline(text: str, *, key: str, alt: str) -> str:
    """Return the SVG ``text`` as an element for HTML. Its ids begin with ``key``; readers hear ``alt``."""
    root = ET.fromstring(text)  # noqa: S314 - drawn by ourselves a moment ago
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in {f"{_SVG}style", f"{_SVG}metadata"} or not isinstance(child.tag, str):
                parent.remove(child)
    used = {name for element in root.iter() for name in _references(element)}
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        _rewrite(element, key, used)
    box = root.get("viewBox", "")
    root.attrib = {"viewBox": box, "role": "img", "aria-label": alt, "class": "figure"}
    return ET.tostring(root, encoding="unicode")


def _references(element: ET.Element) -> list[str]:
    names = [name for value in element.attrib.values() for name in _REFERENCE.findall(value)]
    href = element.get(f"{_XLINK}href", "")
    return [*names, href.removeprefix("#")] if href.startswith("#") else names


def _rewrite(element: ET.Element, key: str, used: set[str]) -> None:
    """Turn an element's style into attributes and classes, and keep ids only where they are referred to."""
    made: dict[str, str] = {}
    classes: list[str] = []
    properties = dict(element.attrib)
    style = properties.pop("style", "")
    pairs = [part.split(":", 1) for part in style.split(";") if ":" in part]
    properties.update({name.strip(): value.strip() for name, value in pairs})
    for name, value in properties.items():
        if name in {"fill", "stroke"} and value in _NAMES:
            classes.append(f"{name[0]}-{_NAMES[value]}")
        elif name == "id":
            if value in used:
                made["id"] = f"{key}-{value}"
        elif name == f"{_XLINK}href":
            made["href"] = f"#{key}-{value.removeprefix('#')}"
        elif not name.startswith("{") and name not in _DROPPED_PROPERTIES:
            made[name] = _REFERENCE.sub(rf"url(#{key}-\1)", value)
    if classes:
        made["class"] = " ".join(classes)
    element.attrib = made
