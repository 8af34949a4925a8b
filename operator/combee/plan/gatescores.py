"""How a version and what it was learned from scored on heldOut's gate, example by example. Pure.

It travels in the version's ConfigMap, so that a candidate can be compared with *today's* active version on
the examples that both were scored on, without a model call and without access to the data: examples
are named by a hash of their ids.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from combee.algo.clusters import sides_by_cluster
from combee.api.metric import OWN
from combee.errors import UserError
from combee.jsonread import MALFORMED, finite, read_json

GATE_VERSION = 1
_NAME_DIGITS = 12
_MAX_WORDS = 200


@dataclass(frozen=True, slots=True)
class GateScores:
    """Scores in [0, 1] by example; both mappings have the same keys."""

    held_out: str
    """the content digest of the whole heldOut split."""
    baseline: Mapping[str, float]
    """the scores of the artifact that learning started from."""
    best: Mapping[str, float]
    """the scores of the version itself."""
    scored_by: str = OWN
    """how they were scored, in words; a task's own way where nobody said."""

    @classmethod
    def paired(
        cls, held_out: str, baseline: Mapping[str, float], best: Mapping[str, float], scored_by: str = OWN
    ) -> GateScores:
        """Return the scores, given by example id, on the examples that both were scored on."""
        both = sorted(baseline.keys() & best.keys())
        return cls(
            held_out,
            {_named(example): float(baseline[example]) for example in both},
            {_named(example): float(best[example]) for example in both},
            scored_by,
        )

    def to_json(self) -> str:
        """Return compact JSON, with some twenty bytes an example."""
        rows = {name: [_short(self.baseline[name]), _short(self.best[name])] for name in sorted(self.best)}
        head = {"version": GATE_VERSION, "heldOut": self.held_out, "scoredBy": self.scored_by}
        body = {**head, "scores": rows}
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, *, where: str = "gate.json") -> GateScores:
        """Read what ``to_json`` wrote. Raises UserError for the rest: anybody may have made the ConfigMap."""
        try:
            raw = read_json(text)
            if raw["version"] != GATE_VERSION:
                raise ValueError(f"version {raw['version']}")
            rows = raw["scores"].items()
            baseline = {str(name): _score(pair[0]) for name, pair in rows}
            best = {str(name): _score(pair[1]) for name, pair in rows}
            return cls(str(raw["heldOut"]), baseline, best, _words(raw.get("scoredBy", OWN)))
        except MALFORMED as error:
            raise UserError(
                f"the scores on gate cannot be read ({type(error).__name__})",
                where=where,
                fix="Leave the key out, or let a run make the version",
            ) from None


def gate_sides(record: str, blob: Callable[[str], bytes]) -> dict[str, dict[str, float]]:
    """Return ``baseline`` and ``best`` of a look at gate by example, or by cluster where rows have them.

    ``record``: the digest of what the look recorded; ``blob``: returns the bytes of a digest. Raises KeyError
    for the record of a version that kept no scores.
    """
    return sides_by_cluster(json.loads(blob(json.loads(blob(record))["scores"]["gate"])))


def _named(example: str) -> str:
    return hashlib.sha256(example.encode()).hexdigest()[:_NAME_DIGITS]


def _short(score: float) -> float | int:
    return int(score) if score in (0.0, 1.0) else round(score, 4)


def _words(raw: Any) -> str:
    if not isinstance(raw, str) or len(raw) > _MAX_WORDS:
        raise ValueError("no words for how it was scored")
    return raw


def _score(raw: Any) -> float:
    score = finite(raw)
    if not 0.0 <= score <= 1.0:
        raise ValueError("a score is not in [0, 1]")
    return score
