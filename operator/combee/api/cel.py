"""CEL rules: what the API server checks beyond types and bounds. This file has the rules of texts.

A rule stands at a model or at a type of text, wherever a manifest has one; ``mirrors`` names the
validator here that refuses the same, or CLUSTER for what only a cluster asks for
(``combee.api.cluster`` checks that again). ``combee.api.cel_table`` has all of them.
"""

from __future__ import annotations

from combee.api import common, extension, playbook, prices, prometheus, texts
from combee.api.common import Rule
from combee.api.playbook import Playbook, PlaybookVersion
from combee.api.run import PromptLearningRun

CLUSTER = "cluster"
_CONTROL = r"[\\x00-\\x20\\x7f\\\\]"


def _matches(pattern: str) -> str:
    return f"self.matches('^({_text(pattern)})$')"


def _text(pattern: str) -> str:
    """Return a regular expression as it stands inside a CEL string."""
    return pattern.replace("\\", "\\\\")


def _uri(at: str, schemes: tuple[str, ...], mirrors: str) -> tuple[Rule, ...]:
    allowed = ", ".join(f"{scheme}://" for scheme in schemes)
    return (
        Rule(at, "!self.contains('::')", "'::' chains filesystems, which is not allowed", mirrors),
        Rule(
            at,
            f"!self.matches('{_CONTROL}')",
            "holds blanks, backslashes or control characters",
            mirrors,
        ),
        Rule(
            at,
            f"self.matches('^(?i)({'|'.join(schemes)})://[^/]')",
            f"on a cluster only {allowed} with a bucket or host can be used",
            CLUSTER,
        ),
        Rule(
            at,
            "!self.matches('^[^/]*://[^/]*@')",
            "credentials inside a URI: put them in a Secret and name it with secretRef",
            mirrors,
        ),
    )


NAMES: tuple[Rule, ...] = tuple(
    Rule(
        kind,
        f"self.metadata.name.matches('^({common.LABEL.pattern})$')",
        common.LABEL.message,
        "common.Form.check",
        ".metadata.name",
    )
    for kind in (PromptLearningRun, Playbook, PlaybookVersion)
)
FORMS = (
    common.LABEL,
    common.OBJECT_NAME,
    common.KEY,
    texts.ENV_NAME,
    texts.CLASS_PATH,
    texts.FLOW_ID,
    common.DIGEST,
    prices.CURRENCY,
    prometheus.SIDE,
    playbook.CRON,
)
TEXTS: tuple[Rule, ...] = (
    *(Rule(form.name, _matches(form.pattern), form.message, "common.Form.check") for form in FORMS),
    Rule(
        "InnerPath",
        "!self.matches('\\\\x00') && self.split('/').all(part, part != '' && part != '..')",
        "not a path inside the volume: use a relative path without '..', such as formula/train.jsonl",
        "common._inner_path",
    ),
    *_uri("DataUri", common.REMOTE_SCHEMES, "common._data_uri"),
    *_uri("StoreUri", common.WRITABLE_SCHEMES, "common._store_uri"),
    Rule(
        "EndpointUrl",
        f"!self.matches('{_CONTROL}') && self.matches('^https?://[^/?#]+(/[^?#]*)?$')",
        "not an http or https address without query or fragment, such as https://llm.example.com/v1",
        "common._endpoint_url",
    ),
    Rule(
        "EndpointUrl",
        "!self.matches('^https?://[^/?#]*@')",
        "credentials inside an address: put the key in a Secret and name it with apiKeySecretRef",
        "common._endpoint_url",
    ),
    Rule(
        "EndpointUrl",
        "!self.matches('^https?://[^/?#@]+(/|$)') || "
        "self.matches('^https?://(\\\\[[0-9A-Fa-f:.]+\\\\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/|$)')",
        "not a valid host in the address",
        "common._endpoint_url",
    ),
    Rule(
        "Words", "self.matches('\\\\S')", "empty: write a few words, or leave the field out", "common._words"
    ),
    Rule(
        "Extension",
        _matches(extension.EXTENSION),
        "not a name: use letters and digits, a capital first, such as TopK",
        "extension.Names.check",
    ),
    Rule(
        "Quantity",
        f"type(self) == int ? self >= 0 : self.matches('^({_text(common.QUANTITY.pattern)})$')",
        common.QUANTITY.message,
        "common.Form.check",
    ),
    Rule(
        "Labels",
        f"self.all(key, size(key) <= 317 && key.matches('^({_text(common.LABEL_KEY)})$')"
        f" && self[key].matches('^({_text(common.LABEL_VALUE)})$'))",
        "not a valid label: use at most 63 of letters, digits, '-', '_' and '.' after an optional prefix/, "
        "starting and ending with a letter or digit",
        "common.check_labels",
    ),
    Rule(
        "Annotations",
        f"self.all(key, size(key) <= 317 && key.matches('^({_text(common.LABEL_KEY)})$'))",
        "not a valid annotation: its key is at most 63 of letters, digits, '-', '_' and '.' after an "
        "optional prefix/",
        "common.check_label_keys",
    ),
    Rule(
        "ResourceList",
        f"self.all(key, key.matches('^({_text(texts.RESOURCE)})$'))",
        "not a resource that can be asked for here: use cpu, memory, ephemeral-storage or rdma/...; GPUs are "
        "vllm.gpusPerReplica",
        "texts._known_resources",
    ),
    Rule(
        "PromQL",
        " || ".join(f"self.contains('{place}')" for place in prometheus.PLACES),
        f"the query holds none of {', '.join(prometheus.PLACES)}: select one version's answers, it is asked "
        "of both",
        "prometheus._query",
    ),
)
