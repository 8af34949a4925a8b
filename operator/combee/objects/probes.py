"""How to tell that a vLLM server has started, takes calls, or is dead.

Loading weights and compiling take minutes to an hour; a liveness probe that runs meanwhile kills the
server for ever. So only the startup probe judges a server that loads: it has started once it lists its
model and has answered one request, since a server that lists a model it cannot run is not one to send a
batch to. ``/health`` says whether the engine still lives. A server that is merely busy answers late, so
liveness takes minutes to be convinced.
"""

from __future__ import annotations

from combee.objects.addresses import PORT, Answers
from combee.objects.types import Object

STARTUP_SECONDS = 3600
ATTEMPT_SECONDS = 60
"""An attempt of the startup probe asks again and again for this long: a server compiles for its first answer,
and a program a minute costs a node little."""
_SPARE_SECONDS = 15
"""Time for a busy node to start and end the program: one that the kubelet ends cannot say why it failed."""
_PERIOD = 2

_PATHS: dict[Answers, tuple[str, str]] = {
    "chat": ("/v1/chat/completions", "choices"),
    "embeddings": ("/v1/embeddings", "data"),
}

# It runs in the server's own image, which has Python for vLLM, and holds no `$`, which the kubelet expands.
PROGRAM = """\
import http.client, json, sys, time

port, path, listed, seconds = int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
until = time.monotonic() + seconds


def call(method, path, body=None):
    left = max(0.1, until - time.monotonic())
    server = http.client.HTTPConnection("127.0.0.1", port, timeout=left)
    try:
        text = None if body is None else json.dumps(body)
        server.request(method, path, text, {"Content-Type": "application/json"})
        reply = server.getresponse()
        answer = reply.read().decode(errors="replace")
    except OSError as error:
        raise RuntimeError(f"{path} does not answer: {error}")
    finally:
        server.close()
    if reply.status != 200:
        raise RuntimeError(f"{path} answers {reply.status}: {answer[:500]}")
    return json.loads(answer)


def ask():
    model = call("GET", "/v1/models")["data"][0]["id"]
    # Never the same twice: neither a cache nor bad luck that clings to a request answers for the server.
    words = f"Are you ready? ({time.time_ns()})"
    body = {"model": model, "input": words}
    if listed == "choices":
        body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": words}]}
    call("POST", path, body)[listed][0]


while True:
    try:
        ask()
        sys.exit(0)
    except (RuntimeError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
    except (ValueError, LookupError, TypeError) as error:
        why = f"an answer of another form than expected: {error!r}"
    if time.monotonic() + 1 > until:
        sys.exit(why)
    time.sleep(1)
"""


def probes(answers: Answers = "chat") -> Object:
    """Return the three probes of a server's container."""
    return {
        "startupProbe": _served(answers),
        "readinessProbe": _get("/health", period=5, timeout=5, failures=3),
        "livenessProbe": _get("/health", period=30, timeout=20, failures=10),
    }


def _served(answers: Answers) -> Object:
    path, listed = _PATHS[answers]
    # Neither what is installed in the image nor its environment changes what the program does.
    python = ["python3", "-I", "-S", "-c", PROGRAM]
    return {
        "exec": {"command": [*python, str(PORT), path, listed, str(ATTEMPT_SECONDS)]},
        "periodSeconds": _PERIOD,
        "timeoutSeconds": ATTEMPT_SECONDS + _SPARE_SECONDS,
        "failureThreshold": STARTUP_SECONDS // ATTEMPT_SECONDS,
        "successThreshold": 1,
    }


def _get(path: str, *, period: int, timeout: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
        "successThreshold": 1,
    }
