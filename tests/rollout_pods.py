"""A pod of one rollout without a cluster: the attendant's container in a thread, and the kubelet's part."""

from __future__ import annotations

import errno
import http.client
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from combee.objects.rollout_layout import BIN, END, GOING, LAUNCHER, OUT, READY, SCRATCH, SHELL, TASK
from combee.pod.attend import Attendant, answering
from combee.pod.log import PodLog
from combee.settings import AttendSettings

BUSYBOX = shutil.which("busybox")


@dataclass
class FakePod:
    """``program`` stands for the user's container; ``die`` ends its first process as the kernel would."""

    root: Path
    desk: str
    token: str
    program: Sequence[str]
    prefix: Sequence[str] = ()
    die: bool = False
    killed: bool = False
    """by the kubelet, since it may not go on."""
    port: int = 0
    claimed_by: str = ""
    """the file that says whose a pod out of a warm pool is."""
    over: threading.Event = field(default_factory=threading.Event)
    """whether it is deleted while it waits for something to do."""

    def run(self) -> None:
        """The pod's life, from its first container to its end."""
        for folder in (TASK, OUT, SCRATCH, BIN, END):
            self.path(folder).mkdir(parents=True, exist_ok=True)
        settings = AttendSettings(self.root, "ERROR", self.desk, self.token, self.claimed_by)
        attendant = Attendant(settings, PodLog({}, "ERROR"), Path(BUSYBOX or ""))
        with answering(attendant, 0) as self.port:
            attending = threading.Thread(target=attendant.run)
            attending.start()
            while not self.asked(READY):
                time.sleep(0.02)
            self._user()
            attendant.ending = True
            attending.join(120)
            assert not attending.is_alive()

    def path(self, absolute: str) -> Path:
        return self.root / absolute.lstrip("/")

    def asked(self, path: str) -> bool:
        """The kubelet's question, however long a busy machine takes to answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status == 200

    def _user(self) -> None:
        words = [*self.prefix, self.path(SHELL), "sh", self.path(LAUNCHER), self.path(END), *self.program]
        env = {
            "PATH": "/usr/bin:/bin",
            "COMBEE_TASK": str(self.path(TASK)),
            "COMBEE_OUT": str(self.path(OUT)),
            "TMPDIR": str(self.path(SCRATCH)),
        }
        process = _started([str(word) for word in words], env)
        while process.poll() is None:
            if self.die and (self.path(END) / "begun").exists():
                process.kill()
            elif not self.asked(GOING):
                self.killed = True
                os.killpg(process.pid, signal.SIGKILL)
            elif self.over.is_set():
                process.terminate()
            time.sleep(0.02)


def _started(words: Sequence[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the program, and again while another thread's child still holds the just written file open."""
    while True:
        try:
            return subprocess.Popen(words, env=env, start_new_session=True)
        except OSError as error:
            if error.errno != errno.ETXTBSY:
                raise
            time.sleep(0.01)
