"""Serve the environments of tasks to rollouts, which may start no pods themselves.

A rollout's pod holds no token, and its program is not in the task's image. It asks here for a pod of an image
that --image-prefix allows, has commands run in it, and gives it back. Who knows an environment's name may use
it, so nobody but rollouts should reach this server: environments.yaml has the NetworkPolicies.

    python serve.py --image-prefix alexgshaw/ [--namespace terminal-bench] [--most 16] [--restricted]

    POST   /environments         {"image", "task", "cpus", "memoryMb", "seconds"}: {"name"}
    POST   /environments/NAME    {"command", "seconds"}: {"code", "output"}
    PUT    /environments/NAME/PATH   the file's content
    GET    /environments/NAME/PATH   the file's content
    DELETE /environments/NAME
"""

import argparse
import json
import signal
import sys
import threading
import urllib.parse
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pods import PodError, Pods, new_name

MOST_BYTES = 64 * 1024 * 1024
MOST_SHOWN = 256 * 1024
"""bytes of a command's output that are sent"""
SECONDS = (1, 24 * 3600)
MEMORY_MB = (16, 1024 * 1024)


class RefusedError(Exception):
    """A request that is not done: its status and words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Environments:
    """The environments of this server: at most ``most`` at a time, of images that begin with a prefix."""

    def __init__(self, pods: Pods, prefixes: list[str], most: int) -> None:
        self.pods, self.prefixes, self.most = pods, tuple(prefixes), most
        self.lock, self.starting, self.going = threading.Lock(), 0, set(pods.names())

    def start(self, asked: dict) -> str:
        """Start one; return its name."""
        image = str(asked.get("image", ""))
        if not image.startswith(self.prefixes):
            raise RefusedError(403, f"the image {image!r} has no prefix that --image-prefix allows")
        cpus, memory = within(asked, "cpus", 0.01, 1024), f"{within(asked, 'memoryMb', *MEMORY_MB):.0f}Mi"
        # Of the CPU a tenth is asked for: an agent mostly waits for its model.
        resources = {
            "requests": {"cpu": f"{cpus * 100:.0f}m", "memory": memory},
            "limits": {"cpu": f"{cpus * 1000:.0f}m", "memory": memory},
        }
        pods = replace(self.pods, resources=resources, seconds=int(within(asked, "seconds", *SECONDS)))
        name = new_name(str(asked.get("task", "")))
        self.take_place()
        try:
            pods.start(name, image)
            self.going.add(name)
        finally:
            with self.lock:
                self.starting -= 1
        return name

    def take_place(self) -> None:
        """Count one more that starts, where there is place for it."""
        with self.lock:
            # Those whose rollouts died are not given back: their pods end at their deadline.
            self.going &= set(self.pods.names())
            if self.starting + len(self.going) >= self.most:
                raise RefusedError(503, f"there are {self.most} environments already")
            self.starting += 1

    def run(self, name: str, asked: dict) -> dict:
        """Run a command; its output is standard output and error, the end of it where it is long."""
        if not isinstance(asked.get("command"), str):
            raise RefusedError(400, "command is no text")
        command, seconds = f"exec 2>&1\n{asked['command']}", within(asked, "seconds", *SECONDS)
        done = self.pods.run(self.known(name), command, seconds=seconds, most=MOST_SHOWN)
        return {"code": done.code, "output": (done.stdout + done.stderr).decode(errors="replace")}

    def stop(self, name: str) -> None:
        """Give one back."""
        self.pods.stop(self.known(name))
        self.going.discard(name)

    def known(self, name: str) -> str:
        """The name of one that was started here."""
        if name not in self.going:
            raise RefusedError(404, "there is no such environment")
        return name


def within(asked: dict, name: str, least: float, most: float) -> float:
    """A number of a request."""
    value = asked.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise RefusedError(400, f"{name} is no number from {least} to {most}")
    return value


class Handler(BaseHTTPRequestHandler):
    """Answers a rollout."""

    environments: Environments

    def do_POST(self) -> None:
        """Start an environment, or run a command in one."""
        self.answer(lambda name, _: self.started() if not name else self.environments.run(name, self.asked()))

    def do_PUT(self) -> None:
        """Write a file."""
        self.answer(self.put)

    def do_GET(self) -> None:
        """Read a file."""
        self.answer(self.get)

    def do_DELETE(self) -> None:
        """Give an environment back."""
        self.answer(lambda name, _: self.environments.stop(name))

    def started(self) -> dict:
        return {"name": self.environments.start(self.asked())}

    def put(self, name: str, path: str) -> None:
        self.environments.pods.put(self.environments.known(name), path, self.body())

    def get(self, name: str, path: str) -> bytes:
        content = self.environments.pods.get(self.environments.known(name), path, most=MOST_BYTES)
        if content is None:
            raise RefusedError(404, f"there is no file {path}")
        return content

    def answer(self, do) -> None:
        """Do what was asked, and answer with what it gives, or with why it was not done."""
        _, first, name, *path = [*urllib.parse.unquote(self.path).split("/", 3), "", ""][:4]
        try:
            if first != "environments":
                raise RefusedError(404, "there is nothing here but /environments")
            given, status = do(name, f"/{path[0]}" if path else ""), 200
        except RefusedError as refused:
            given, status = {"error": str(refused)}, refused.status
        except PodError as failed:
            given, status = {"error": str(failed)}, 502
        data = given if isinstance(given, bytes) else json.dumps(given or {}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def asked(self) -> dict:
        """The request's JSON object."""
        try:
            asked = json.loads(self.body())
        except ValueError:
            asked = None
        if not isinstance(asked, dict):
            raise RefusedError(400, "the request is no JSON object")
        return asked

    def body(self) -> bytes:
        said = self.headers.get("Content-Length") or "0"
        length = int(said) if said.isdecimal() else 0
        if length > MOST_BYTES:
            raise RefusedError(413, f"the request is longer than {MOST_BYTES} bytes")
        return self.rfile.read(length)

    def log_message(self, format: str, *words: object) -> None:
        """Say nothing: names of environments are keys to them."""


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--image-prefix", action="append", required=True, help="images that may be run begin so"
    )
    parser.add_argument("--namespace", default="terminal-bench")
    parser.add_argument("--most", type=int, default=16, help="environments at a time")
    parser.add_argument(
        "--restricted", action="store_true", help="as user 10001, without any right of root's"
    )
    parser.add_argument("--kubectl", action="append", default=[], metavar="FLAG", help="a flag of kubectl")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    return parser.parse_args()


def main() -> None:
    """Serve until told to end."""
    words = arguments()
    pods = Pods(words.namespace, words.restricted, tuple(words.kubectl))
    Handler.environments = Environments(pods, words.image_prefix, words.most)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ThreadingHTTPServer((words.host, words.port), Handler) as server:
        print(f"serving on http://{words.host}:{server.server_address[1]}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
