"""The message for an unexpected error."""

from __future__ import annotations

import traceback
from pathlib import Path

_FRAMES = 3


def bug_text(error: BaseException) -> str:
    """Return the message for an unexpected error: its class and place, never its message or values, since
    these can hold rows of data (the name of a missing module cannot)."""
    if isinstance(error, ImportError):
        return f"{error}. Install combee with all its dependencies: pip install combee-operator"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "combee" in frame.filename]
    places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-_FRAMES:]]
    return (
        f"{type(error).__name__} at {' > '.join(places) or 'an unknown place'}. "
        "This is a bug in combee; please report this line with the command you ran"
    )
