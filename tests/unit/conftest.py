"""Property tests are not timed: a busy machine must not fail them.

With ``CI`` set they draw the same examples every time, so that a change is judged by itself; without it each
run looks for new ones."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "untimed",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")
