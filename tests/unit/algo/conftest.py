"""Property tests of mathematics are not timed: a busy machine must not fail them."""

from hypothesis import settings

settings.register_profile("untimed")
settings.load_profile("untimed")
