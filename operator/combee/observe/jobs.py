"""How a Job ended, as its conditions say. Pure."""

from __future__ import annotations

from combee.clients.kubernetes.kube import Object


def ended(job: Object, *ways: str) -> Object | None:
    """Return the condition by which a Job ended in one of ``ways`` (Complete, Failed; none: either), or None
    where it did not."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    how = ways or ("Complete", "Failed")
    return next((one for one in conditions if one["type"] in how and one.get("status") == "True"), None)
