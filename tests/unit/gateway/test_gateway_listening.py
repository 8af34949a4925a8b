"""The socket that the gateway listens on: how much a busy loop takes of it, and that it ends."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop
from bench.ports import free_ports

from combee.gateway.door import Connection, Door, Unwelcome
from combee.gateway.main import listening, server_of
from combee.gateway.metrics import Metrics
from combee.gateway.proxy import Gateway
from combee.gateway.room import EACH, Room
from combee.gateway.table import Table
from combee.gateway.upstream import Upstreams
from waiting import until

CLIENTS = 256


class Counting(Door):
    """A door that remembers who came."""

    def __init__(self) -> None:
        super().__init__(CLIENTS, CLIENTS, Metrics().turned_away)
        self.came = 0

    def enter(self, connection: Connection, address: str) -> Unwelcome | None:
        self.came += 1
        return super().enter(connection, address)


async def turns_of(port: int, door: Counting) -> int:
    """The turns of the loop in which connections are taken that all wait already."""
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(CLIENTS)]
    turns = 0
    while door.came < CLIENTS:
        await asyncio.sleep(0)
        turns += 1
    for client in clients:
        client.close()
    return turns


async def served() -> int:
    (port,) = free_ports(1)
    door = Counting()
    async with Upstreams() as upstreams:
        gateway = Gateway(lambda: Table(known=True), upstreams, Metrics(), Room(2**26))
        with listening("127.0.0.1", port) as sockets:
            server = server_of(gateway, door)
            serving = asyncio.create_task(server.serve(sockets=sockets))
            await until(lambda: server.started)
            turns = await turns_of(port, door)
            server.should_exit = True
            await serving
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
    return turns


def test_one_turn_of_the_loop_takes_many_connections_and_none_once_it_stops() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        turns = runner.run(served())
    assert turns < CLIENTS // 4


def test_what_a_client_sends_unread_is_part_of_what_a_connection_takes() -> None:
    with listening("127.0.0.1", 0) as sockets:
        sockets[0].listen()
        with socket.create_connection(sockets[0].getsockname()) as client:
            client.setblocking(False)
            taken, _ = sockets[0].accept()
            with pytest.raises(BlockingIOError):
                while True:
                    client.send(b"x" * 2**20)
            with taken:
                assert len(taken.recv(2**20)) < EACH
