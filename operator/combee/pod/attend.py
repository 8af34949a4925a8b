"""``combee-worker attend``: the container beside a user's own, in a pod that does one rollout.

Once the user's container is there and waits, it claims a rollout at a step's desk, lays out what the user's
program is given, watches it, and hands in what it left. The user's container is started once ``/ready`` says
yes, and ended when ``/going`` no longer does.

/task            the files that the user's container is given; it may read them
/out, /scratch   what the user's container may write: its results, its /tmp
/combee/bin      how the user's container is started: a shell, a script, variables; it may read them
/combee/end      where the script says how it ends
/combee/claim    only out of a warm pool: whose this pod is, empty while it waits there

No thread and no program is started after the user's container, so that one which takes all processes of the
pod can still be reported.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from combee.clients.sandbox.deskwire import BEAT, CLAIM, KILLED, LEFT, LOST_SECONDS
from combee.clients.sandbox.leavings import bytes_below, plain_files
from combee.clients.sandbox.sandbox import SAID_BYTES
from combee.objects.rollout_layout import (
    BIN,
    END,
    GOING,
    LAUNCHER,
    OUT,
    PROBES_PORT,
    READY,
    SCRATCH,
    SHELL,
    TASK,
)
from combee.pod.log import PodLog
from combee.settings import AttendSettings

DONE = 0
LOOK_SECONDS = 0.25
BEAT_SECONDS = 2.0
CALL_SECONDS = 10.0
BEGIN_SECONDS = 60.0
"""How long the user's container, which waits, may take to begin, before somebody else gets the rollout."""
_SCRIPT = Path(__file__).with_name("launch.sh")
_CODE_BYTES = 16


class State(Enum):
    """Where a rollout is."""

    STARTING = "starting"
    WAITING = "waiting"
    CLAIMED = "claimed"
    OVER = "over"


@dataclass(slots=True)
class Attendant:
    """One pod's rollout."""

    settings: AttendSettings
    log: PodLog
    shell: Path = Path("/opt/combee/libexec/busybox")
    """the path of a static busybox, which starts the user's program."""
    state: State = State.STARTING
    ending: bool = False
    """whether the pod was told to end, as it is when the user's container has ended."""
    task: dict[str, Any] = field(default_factory=dict)
    heard: float = 0.0
    """when the desk answered last."""

    def run(self) -> int:
        """Attend to a rollout until the pod ends; return the exit code."""
        marker = self.path(BIN) / "claimed"
        if marker.exists():
            # The container was started again: what it knew is lost, and so is the rollout.
            self.log.say("WARNING", "this container was started again: the rollout is given up")
            return self.over()
        self.bring_launcher()
        self.state = State.WAITING
        while not self.ending and not (self.awaited() and self.claim()):
            time.sleep(LOOK_SECONDS)
        if self.ending:
            return DONE
        marker.touch()
        self.lay_out()
        self.heard, self.state = time.monotonic(), State.CLAIMED
        self.log.say("INFO", "a rollout is claimed")
        self.hand_in(*self.watch())
        return self.over()

    def over(self) -> int:
        """Let the user's container be ended, and wait for the pod's end."""
        self.state = State.OVER
        while not self.ending:
            time.sleep(LOOK_SECONDS)
        return DONE

    def bring_launcher(self) -> None:
        """Bring what starts the user's program."""
        for source, name in ((_SCRIPT, LAUNCHER), (self.shell, SHELL)):
            # Renamed, since the user's container may run the one that is there.
            part = self.path(f"{name}.part")
            shutil.copy(source, part)
            part.rename(self.path(name))

    def awaited(self) -> bool:
        """Return whether the user's container is there, and waits for a rollout, in no pool any more."""
        if not (self.path(END) / "there").exists():
            return False
        claimed_by = self.settings.claimed_by
        return not claimed_by or bool(self.path(claimed_by).read_text(encoding="utf-8"))

    def claim(self) -> bool:
        """Try to claim a rollout; return whether one was claimed."""
        status, body = self.ask(CLAIM, self.settings.token)
        if status == 200:
            self.task = json.loads(body)
        elif status not in (0, 204):
            self.log.say("WARNING", f"the desk refuses this pod ({status})")
        return status == 200

    def lay_out(self) -> None:
        """Write what the user's program is given, and last the variables, for which its container waits."""
        for name, data in self.task["files"].items():
            (self.path(TASK) / name).write_bytes(base64.b64decode(data))
        variables = "".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in self.task["env"].items()
        )
        part = self.path(BIN) / "env.part"
        part.write_text(variables, encoding="utf-8")
        part.rename(self.path(BIN) / "env")

    def watch(self) -> tuple[int, str, float]:
        """Watch to the end; return its exit code (negative: nothing to hand in), why it ended and seconds."""
        claimed = began = beat_at = time.monotonic()
        begun = False
        while True:
            now = time.monotonic()
            if not begun and (self.path(END) / "begun").exists():
                begun, began = True, now
            if now - beat_at >= BEAT_SECONDS:
                beat_at = now
                if not self.beat(begun):
                    return -1, "", 0.0
            ended = self.ended(begun, now - began)
            if ended is not None:
                return (*ended, now - began)
            if not begun and now - claimed > BEGIN_SECONDS:
                self.log.say("WARNING", "the user's container did not begin in time")
                return -1, "", 0.0
            time.sleep(LOOK_SECONDS)

    def ended(self, begun: bool, seconds: float) -> tuple[int, str] | None:
        """Return the exit code and why it was ended; None while it goes on."""
        full = bytes_below((self.path(OUT), self.path(SCRATCH), self.path(END))) >= self.task["scratchBytes"]
        code = plain_files(self.path(END), {"code": _CODE_BYTES}, os.getuid()).get("code", b"").strip()
        if full:
            return KILLED, "disk"
        if code:
            return (int(code) if code.isdigit() else 1), ""
        if begun and seconds >= self.task["seconds"]:
            return KILLED, "timeout"
        if self.ending:
            # It died before it could tell its exit code: the script's own process was killed, too.
            return (KILLED, "") if begun else (-1, "")
        return None

    def beat(self, begun: bool) -> bool:
        """Tell the desk that the rollout goes on; return whether it is still wanted."""
        status, _ = self.ask(f"{BEAT}?begun={int(begun)}", self.task["key"])
        if status == 204:
            self.heard = time.monotonic()
        return status in (0, 204) and time.monotonic() - self.heard < LOST_SECONDS

    def hand_in(self, code: int, why: str, seconds: float) -> None:
        """Tell the desk how it ended and what it left."""
        if code < 0:
            return
        files = plain_files(self.path(OUT), self.task["left"], os.getuid())
        output = plain_files(self.path(END), {"said": SAID_BYTES}, os.getuid()).get("said", b"")
        body = {
            "code": code,
            "why": why,
            "seconds": seconds,
            "said": output.decode(errors="replace"),
            "files": {name: base64.b64encode(data).decode() for name, data in files.items()},
        }
        until = time.monotonic() + CALL_SECONDS
        while (status := self.ask(LEFT, self.task["key"], body)[0]) == 0 and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        self.log.say("INFO", "the rollout is over", exitCode=code, ended=why, status=status)

    def ask(self, path: str, key: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        """Ask the desk; return the status and body of its answer, 0 and nothing without one."""
        desk = urlsplit(self.settings.desk if path == CLAIM else self.task["desk"])
        connection = http.client.HTTPConnection(desk.hostname or "", desk.port, timeout=CALL_SECONDS)
        try:
            data = json.dumps(body).encode() if body is not None else b""
            connection.request("POST", path, data, {"Authorization": f"Bearer {key}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def path(self, absolute: str) -> Path:
        """Return a path of the pod's layout."""
        return self.settings.path(absolute)


def run(settings: AttendSettings, log: PodLog) -> int:
    """Attend to one rollout; return the exit code."""
    attendant = Attendant(settings, log)

    def end(*_: object) -> None:
        attendant.ending = True

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)
    with answering(attendant):
        return attendant.run()


class answering:
    """Answers the kubelet's questions, in one thread that is there before the user's container is."""

    def __init__(self, attendant: Attendant, port: int = PROBES_PORT) -> None:
        self.server = HTTPServer(("", port), _handler(attendant))

    def __enter__(self) -> int:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return int(self.server.server_address[1])

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def _handler(attendant: Attendant) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 60

        def do_GET(self) -> None:
            good = {READY: attendant.state is not State.STARTING, GOING: attendant.state is not State.OVER}
            self.send_response(200 if good.get(self.path) else 503)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler
