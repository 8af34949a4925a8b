"""The paths and limits that a desk and its pods share. Imports nothing: the pods are many and small."""

from __future__ import annotations

CLAIM, BEAT, LEFT = "/rollouts/claim", "/rollouts/beat", "/rollouts/left"
LOST_SECONDS = 30.0
"""A pod that sends nothing for so long counts as lost, and so does a desk that does not answer."""
KILLED = 137
"""The exit code of a command that was killed by a signal it cannot handle."""
