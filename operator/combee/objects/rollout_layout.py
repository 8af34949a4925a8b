"""Where things are in a pod that does one rollout. Loads nothing: the container that reads it is small."""

from __future__ import annotations

PORT = 8090
"""of a desk, in a step's pod."""
PROBES_PORT = 8098
"""of the container beside the user's."""
READY, GOING = "/ready", "/going"
"""what the kubelet asks it: whether the user's container may start, and whether it may go on."""

TASK, OUT = "/task", "/out"
SCRATCH = "/scratch"
"""the user's /tmp, as the container beside it sees it."""
BIN, END = "/combee/bin", "/combee/end"
SHELL, LAUNCHER = f"{BIN}/busybox", f"{BIN}/launch.sh"
"""what starts the user's program; the shell is a static one, so the image needs none."""
