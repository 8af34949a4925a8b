"""What a desk and the pods that ask it both know. Loads nothing: the pods are many and small."""

from __future__ import annotations

CLAIM, BEAT, LEFT = "/rollouts/claim", "/rollouts/beat", "/rollouts/left"
LOST_SECONDS = 30.0
"""A pod that says nothing for so long is lost, and so is a desk that does not answer."""
KILLED = 137
"""the exit code of what was ended by a signal that it cannot handle."""
