"""The bench of ``claw mcp-stdio``: ``python bench/wrapper.py [--quick] [OTHER …]``.

It measures the time of a call at 16 connections, each of which asks again when it is answered: to a
stdio server itself, by its pipes, and to the same server through a wrapper, over HTTP. What the
wrapper adds is the difference of the medians. The server answers after 25 to 75 ms, so that calls
come one by one, as those of agents do; and then at once, which shows how many calls a second a
wrapper passes on at most.

Then 1,000 sessions are opened at ours, each with a call, and left: memory is read after the first
hundred and after all.

``OTHER`` is another wrapper to measure beside ours, as a command that holds PORT and SERVER, such
as ``"mcp-proxy --port PORT --stateless -- SERVER"``; it serves at ``/mcp``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median

from stage import Process, free_port, wait_until

from claw_mcp.protocol import RpcMessage
from claw_mcp.stdio_child import StdioChild

CONNECTIONS = 16
SESSIONS = 1_000
ANSWER_SECONDS = 20
OURS = f"{sys.executable} -c 'from claw_cli.app import main; main()' mcp-stdio -- SERVER"
SERVER = """
import asyncio, json, random, sys
async def main(seconds):
    reader, loop = asyncio.StreamReader(limit=1 << 24), asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    def reply(message):
        info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
        result = info if message["method"] == "initialize" else {"content": [{"type": "text", "text": "done"}]}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\\n")
        sys.stdout.flush()
    while line := await reader.readline():
        message = json.loads(line)
        if "id" in message:
            loop.call_later(seconds * random.uniform(0.5, 1.5), reply, message) if seconds else reply(message)
asyncio.run(main(float(sys.argv[1])))
"""


class SilentObserver:
    """An observer that hears nothing."""

    def notice(self, message: RpcMessage) -> None:
        """Take a notification."""

    def log_line(self, line: bytes) -> None:
        """Take a line of standard error."""

    def bad_output(self, problem: str, line: bytes) -> None:
        raise RuntimeError(f"{problem}: {line!r}")


class Connection:
    """One connection to a wrapper."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        self._reader, self._writer, self._port, self.session = reader, writer, port, ""
        self.credential, self.body = "", b""

    @classmethod
    async def open(cls, port: int, token: str = "") -> Connection:
        opened = cls(*await asyncio.open_connection("127.0.0.1", port), port)
        opened.credential = f"Authorization: Bearer {token}\r\n" if token else ""
        return opened

    async def initialize(self) -> None:
        client = {"name": "bench", "version": "1"}
        parameters = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        head = await self.ask("initialize", parameters)
        lines = (line.partition(":") for line in head.split("\r\n"))
        self.session = next(
            (value.strip() for name, _, value in lines if name.lower() == "mcp-session-id"), ""
        )

    async def ask(self, method: str, parameters: object) -> str:
        """Return the head of the answer, whose body has arrived and is kept."""
        async with asyncio.timeout(ANSWER_SECONDS):
            return await self._ask(method, parameters)

    async def _ask(self, method: str, parameters: object) -> str:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters})
        session = (
            f"Mcp-Session-Id: {self.session}\r\nMCP-Protocol-Version: 2025-06-18\r\n"
            if self.session
            else ""
        )
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: "
            f"application/json\r\n{session}"
            f"{self.credential}Accept: application/json, text/event-stream\r\nContent-Length: "
            f"{len(body)}\r\n\r\n"
        )
        self._writer.write((head + body).encode())
        answered = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        if " 200 " not in answered.partition("\r\n")[0]:
            raise RuntimeError(answered)
        length = [
            line for line in answered.lower().split("\r\n") if line.startswith("content-length:")
        ]
        if length:
            self.body = await self._reader.readexactly(int(length[0].partition(":")[2]))
        else:
            await self._read_chunks()
        return answered

    async def _read_chunks(self) -> None:
        self.body = b""
        while size := int((await self._reader.readline()).strip(), 16):
            self.body += (await self._reader.readexactly(size + 2))[:size]
        await self._reader.readline()

    async def call(self) -> None:
        """Call the server's tool.

        Raise ``RuntimeError`` where it was not the server that answered.
        """
        await self.ask("tools/call", {"name": "x", "arguments": {}})
        if b'"done"' not in self.body:
            raise RuntimeError(self.body)

    def close(self) -> None:
        self._writer.close()


async def measure(call: Callable[[int], Awaitable[object]], calls: int) -> float:
    """Return the median time of a call in milliseconds, of all connections."""
    times: list[float] = []

    async def repeat(connection: int) -> None:
        for number in range(calls + 5):
            start = time.perf_counter()
            await call(connection)
            if number >= 5:
                times.append(time.perf_counter() - start)

    await asyncio.gather(*(repeat(number) for number in range(CONNECTIONS)))
    return 1000 * median(times)


async def measure_itself(server: list[str], calls: int) -> float:
    child = await StdioChild.start(server, dict(os.environ), SilentObserver())
    try:
        await child.call("initialize", {"protocolVersion": "2025-11-25"}, 60)
        return await measure(
            lambda _: child.call("tools/call", {"name": "x", "arguments": {}}, 60), calls
        )
    finally:
        await child.stop()


async def measure_wrapper(port: int, calls: int) -> float:
    connections = [await Connection.open(port) for _ in range(CONNECTIONS)]
    for each in connections:
        await each.initialize()
    result = await measure(lambda number: connections[number].call(), calls)
    for each in connections:
        each.close()
    return result


async def open_sessions(port: int, number: int) -> None:
    connection = await Connection.open(port)
    for _ in range(number):
        connection.session = ""
        await connection.initialize()
        await connection.call()
    connection.close()


def answers(port: int) -> bool:
    with contextlib.suppress(OSError, RuntimeError, TimeoutError, asyncio.IncompleteReadError):
        asyncio.run(open_sessions(port, 1))
        return True
    return False


@contextlib.contextmanager
def running(command: str, server: list[str]) -> Iterator[Process]:
    """A wrapper that answers."""
    port = free_port()
    words = shlex.split(command.replace("PORT", str(port)).replace("SERVER", shlex.join(server)))
    environment = {**os.environ, "LISTEN_ADDR": f"127.0.0.1:{port}"}
    process = subprocess.Popen(
        words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: answers(port), f"{words[0]} answers")
        yield Process(process.pid, port)
    finally:
        process.terminate()
        process.wait()


def report(command: str, script: Path, calls: int) -> None:
    for seconds in (0.05, 0.0):
        server = [sys.executable, str(script), str(seconds)]
        itself = asyncio.run(measure_itself(server, calls))
        with running(command, server) as process:
            before, start = process.cpu(), time.perf_counter()
            through = asyncio.run(measure_wrapper(process.port, calls))
            total, cpu = CONNECTIONS * (calls + 5), process.cpu() - before
            rate = total / (time.perf_counter() - start)
            shown = (
                f"itself {itself:6.1f} ms   wrapper {through:6.1f} ms   adds "
                f"{through - itself:5.1f} ms"
            )
            costs = f"{rate:5.0f} calls/s   {1000 * cpu / total:.2f} CPU ms"
            print(f"  answers after about {1000 * seconds:2.0f} ms   {shown}   {costs}")


def report_sessions(script: Path, sessions: int) -> None:
    with running(OURS, [sys.executable, str(script), "0"]) as process:
        asyncio.run(open_sessions(process.port, sessions // 10))
        first = process.rss()
        asyncio.run(open_sessions(process.port, sessions - sessions // 10))
        print(
            f"{sessions} sessions of ours   {first >> 20} MiB after {sessions // 10}, "
            f"{process.rss() >> 20} MiB after all"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the calls and sessions")
    parser.add_argument("others", nargs="*", metavar="OTHER")
    options = parser.parse_args()
    share = 10 if options.quick else 1
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "server.py")
        script.write_text(SERVER, encoding="utf-8")
        for command in (OURS, *options.others):
            print("claw mcp-stdio" if command == OURS else command)
            report(command, script, 200 // share)
        report_sessions(script, SESSIONS // share)


if __name__ == "__main__":
    main()
