"""Run the few tests alone that failed beside others: ``python tests/again.py STATUS AT_MOST``.

STATUS is what pytest ended with. Tests of real processes and of a real cluster share a machine with each other and with
whatever else runs there, so one may wait too long for a reason that is not the project's. A defect fails alone, too; what
passes alone is named, and its first failure stays in the output. Nothing is run again where more than AT_MOST
failed, or where pytest did not run to its end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
RAN_TO_ITS_END = 1


def main(status: int, at_most: int) -> int:
    """The exit status for the suite: ``status``, or that of the second run where there is one."""
    if status != RAN_TO_ITS_END or not FAILED.exists():
        return status
    failed = sorted(json.loads(FAILED.read_text()))
    if not 0 < len(failed) <= at_most:
        return status
    print(f"once more, alone: {', '.join(failed)}", flush=True)
    again = subprocess.run([sys.executable, "-m", "pytest", *failed]).returncode
    print("passed alone" if again == 0 else "failed alone, too", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
