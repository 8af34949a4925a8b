"""Where things are in a pod that does one rollout. It imports nothing, since its reader is small."""

from __future__ import annotations

PORT = 8090
"""The port of a desk, in a step's pod."""
PROBES_PORT = 8098
"""The port of the container beside the user's."""
READY, GOING = "/ready", "/going"
"""What the kubelet asks there: whether the user's container may start, and whether it may go on."""

TASK, OUT = "/task", "/out"
SCRATCH = "/scratch"
"""The user's /tmp, as the container beside the user's sees it."""
BIN, END = "/combee/bin", "/combee/end"
CLAIM = "/combee/claim"
"""Whose a pod out of a warm pool is; only there."""
CLAIMED_BY = f"{CLAIM}/by"
SHELL, LAUNCHER = f"{BIN}/busybox", f"{BIN}/launch.sh"
"""The shell and the script that start the user's program; the shell is static, so the image needs none."""
