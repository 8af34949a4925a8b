"""Read the lines of a Playbook's history from their ConfigMaps."""

from __future__ import annotations

from combee import names
from combee.clients.kubernetes.kube import Kube
from combee.observe.playbooks import writer_of
from combee.plan.playbook.trail import FiledLine

MAX_DIGITS = 9
"""More has no number of a line; one of 40 digits would fit into no status."""


async def filed_lines(kube: Kube, namespace: str, playbook: str) -> tuple[FiledLine, ...]:
    """Return the lines that are in ConfigMaps, by their numbers. Raises ClusterError where they cannot be
    listed."""
    labels = f"{names.LABEL_HISTORY}={names.playbook_label(playbook)}"
    lines = []
    for one in await kube.list("ConfigMap", namespace, labels=labels):
        prefix, _, number = str(one["metadata"]["name"]).rpartition("-")
        # Labels of long names are cut, so that two Playbooks can have the same one.
        ours = f"{prefix}-" == names.history_prefix(playbook)
        if ours and number.isdecimal() and len(number) <= MAX_DIGITS:
            text = str((one.get("data") or {}).get(names.LINE_KEY, ""))
            writer = writer_of(one["metadata"], ("data", names.LINE_KEY))
            lines.append(FiledLine(int(number), text, writer))
    return tuple(sorted(lines, key=lambda line: line.number))
