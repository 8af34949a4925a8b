"""llama.cpp's server with a model: llama.py GGUF PORT NAME."""

from __future__ import annotations

import sys
import threading

import xllamacpp


def main() -> None:
    """Serve until killed."""
    gguf, port, name = sys.argv[1:]
    given = xllamacpp.CommonParams()
    given.model.path, given.port, given.model_alias = gguf, int(port), {name}
    given.n_ctx, given.n_parallel = 8192, 2
    for threads in (given.cpuparams, given.cpuparams_batch):
        threads.n_threads, threads.poll = 1, 0
    server = xllamacpp.Server(given)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
