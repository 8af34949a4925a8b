"""Programs that tests start in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from e2e_support import ROOT

from waiting import wait_until

pytestmark = pytest.mark.e2e
STARTS_ONE = """
import sys, time
from pathlib import Path
sys.path[:0] = ["tests", "operator"]
from warm import FORKING, Program
FORKING.set_forkserver_preload(["warm"])
program = Program(["combee", "sim", "serve", "m", "--port=0", "--port-file=port"], {}, "out", "out", ".")
while not Path("port").exists():
    time.sleep(0.05)
print(program.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_program_ends_when_its_tests_are_killed(tmp_path: Path) -> None:
    """One that lived on would hold its addresses when the tests are started again."""
    for name in ("tests", "operator"):
        (tmp_path / name).symlink_to(ROOT / name)
    tests = subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert tests.stdout is not None
    program = Path("/proc", tests.stdout.readline().strip(), "exe")
    assert program.exists()
    tests.send_signal(signal.SIGKILL)
    tests.wait()
    wait_until("its end", lambda: not program.exists())
