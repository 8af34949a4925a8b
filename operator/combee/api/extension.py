"""Names in a manifest that packages outside the product can add: base methods, task types, strategies.

A CRD is written before anybody knows which packages will be installed, so the API server checks the form of
such a name, and whoever reads the manifest (a laptop, the operator, a pod) checks that there is something of
that name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from combee import extensions
from combee.api.common import SCALAR_KEY, refuse

EXTENSION = "[A-Z][A-Za-z0-9]*"


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a text field may hold: the product's own, and those of a group of entry points."""

    group: str
    own: tuple[str, ...]

    def words(self) -> tuple[str, ...]:
        """Return all of them, the product's first."""
        return (*self.own, *(name for name in extensions.names(self.group) if name not in self.own))

    def check(self, value: str) -> str:
        """Return ``value``. Raises an error when it is none of them."""
        if value in self.own:
            return value
        if value not in self.words():
            raise PydanticCustomError(
                "literal_error", "none of the names here: {words}", {"words": ", ".join(self.words())}
            )
        if not re.fullmatch(EXTENSION, value):
            raise refuse(
                "not a name that manifests can have",
                f"Its package must declare it in {self.group} as one of letters and digits, a capital first.",
            )
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a text that is checked."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a text whose form the CRDs check; they do not know which names there are."""
        return {**handler(core), SCALAR_KEY: "Extension"}
