"""The load benchmark: its clients see what there is to see, and its peer does the same work."""

from __future__ import annotations

import asyncio

from benchmarks.clients import Tally, besiege, dates, ours, plain
from benchmarks.load import running


def test_the_peer_gives_the_same_answers() -> None:
    with running("benchmarks.plain_server") as server:
        tally = besiege(plain(server.port), dates(50), clients=4, seconds=0.5)
    assert tally.answered >= 4
    assert set(tally.statuses) == {200}
    assert (tally.wrong, tally.cut, tally.untaken) == (0, 0, 0)


def test_clients_notice_every_kind_of_fault() -> None:
    """A server that answers wrongly, refuses without a time, cuts an answer off, closes before reading."""
    replies = [
        b'HTTP/1.1 200 OK\r\ncontent-length: 56\r\n\r\n{"answers":[{"input":"x","output":"January 5, 1845"}  ]}',
        b"HTTP/1.1 429 Busy\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 429 Busy\r\nretry-after: 1\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{",
        b"",
    ]

    async def scenario() -> Tally:
        left = iter(replies)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(65536):
                reply = next(left, None)
                if reply is None:
                    server.close()
                    break
                writer.write(reply)
                if not reply or reply.endswith(b"{"):
                    break
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        return await asyncio.to_thread(besiege, ours(port), dates(5), 1, 3.0)

    tally = asyncio.run(scenario())
    assert (tally.wrong, tally.unpromising, tally.cut) == (1, 1, 1)
    assert tally.untaken >= 1
    assert tally.statuses == {200: 1, 429: 2}
