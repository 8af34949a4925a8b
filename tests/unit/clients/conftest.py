"""Fixtures: the server on its thread, a store in a folder, and a bench that puts a client on both."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import uvicorn
from adapters_bench import Bench, Server
from starlette.applications import Starlette
from starlette.routing import Route

from combee.clients.store.store import Store
from waiting import wait_until


@pytest.fixture(scope="session")
def _running() -> Iterator[Server]:
    server = Server()
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", server.chat, methods=["POST"]),
            Route("/v1/embeddings", server.embeddings, methods=["POST"]),
            Route("/v1/models", server.list_models),
            Route("/metrics", server.show_metrics),
        ]
    )
    uvicorn_server = uvicorn.Server(
        uvicorn.Config(
            app,
            port=0,
            log_level="critical",
            lifespan="off",
            date_header=False,
            timeout_keep_alive=600,  # no goodbye that a request of a stalled test could cross
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=uvicorn_server.run, daemon=True)
    thread.start()
    wait_until("the server", lambda: uvicorn_server.started)
    port = uvicorn_server.servers[0].sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}/v1"
    yield server
    uvicorn_server.should_exit = True
    thread.join(10)


@pytest.fixture
def server(_running: Server) -> Server:
    _running.forget()
    return _running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(str(tmp_path / "store"))
    yield opened
    opened.close()


@pytest.fixture
async def bench(server: Server, store: Store) -> AsyncIterator[Bench]:
    made = Bench(server, store)
    yield made
    for client in made.clients:
        await client.aclose()
