"""The bench of the tools host: ``python bench/tools.py [--quick]``.

Each row is a function; run it as root or as anybody.

``exec_shell true`` beside a bare ``sh -c true``, in turns; the memory of the host while a command
prints 10 GB; and, over MCP at a real ``claw tools serve``: ``read_file`` of 4 KB at 16 connections,
each of which waits 25 to 75 ms between its calls, as agents do, and 100 sessions that read at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from stage import free_port, is_listening, wait_until
from wrapper import Connection

from claw_contract.toolhost_file import ExecSection, LimitsSection, ToolsSection
from claw_tools.execution.containment import FORMS, find_containment
from claw_tools.execution.tools import exec_tools
from claw_tools.tool import Tool

TOOLS = ToolsSection(exec=ExecSection(enabled=True))
MAX_RESULT = LimitsSection().result_bytes
TOKEN = "bench-token-of-the-tools-host"


async def bare() -> None:
    process = await asyncio.create_subprocess_exec("sh", "-c", "true", stdout=-1, stderr=-1)
    await process.communicate()


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await call()
    return 1000 * (time.perf_counter() - start)


async def exec_shell(root: Path, rounds: int) -> None:
    for form in FORMS:
        with find_containment(TOOLS.exec, [form]) as containment:
            if containment.form is None:
                print(f"exec_shell true   {form:<10}   {containment.reason}")
                continue
            tool = exec_tools(root, TOOLS, containment, MAX_RESULT)[0]

            async def run(tool: Tool = tool) -> None:
                if (result := await tool.execute({"command": "true"}))["exit_code"] != 0:
                    raise RuntimeError(result)

            pairs = [(await timed(bare), await timed(run)) for _ in range(rounds)]
            alone, ours = ([pair[side] for pair in pairs] for side in (0, 1))
            shown = (
                f"sh {median(alone):5.1f} ms   exec_shell {median(ours):5.1f} ms   adds "
                f"{median(ours) - median(alone):5.1f} ms"
            )
            print(
                f"exec_shell true   {form:<10}   {shown}   fastest: adds "
                f"{min(ours) - min(alone):4.1f} ms"
            )


async def ten_gigabytes(root: Path, _rounds: int) -> None:
    with find_containment(TOOLS.exec) as containment:
        tool = exec_tools(root, TOOLS, containment, MAX_RESULT)[0]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await tool.execute({"command": "head -c 10G /dev/zero"})
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(
            f"10 GB of output   the host grows by {grown >> 10} MiB   "
            f"{result['ended_for']}, in {result['duration_ms']} ms"
        )


CONTENT = "x" * 4_096
READ = {"name": "read_file", "arguments": {"path": "page.txt"}}
CLAW = [sys.executable, "-c", "from claw_cli.app import main; main()"]


@contextmanager
def served(root: Path) -> Iterator[int]:
    """Yield the port of a tools host whose one principal has the workspace ``root``."""
    (root / "page.txt").write_text(CONTENT, encoding="utf-8")
    port = free_port()
    principal = {
        "token": {"env": "BENCH_TOKEN"},
        "workspace": str(root),
        "tools": ["*"],
        "limits": {"calls_per_minute": 1_000_000, "concurrent": 200},
    }
    settings = {
        "listen": {"host": "127.0.0.1", "port": port},
        "principals": {"bench": principal},
    }
    config = root.parent / "toolhost.yml"
    # JSON is YAML, too.
    config.write_text(json.dumps({"toolhost": settings}), encoding="utf-8")

    environment = {**os.environ, "BENCH_TOKEN": TOKEN}
    log = subprocess.DEVNULL
    command = [*CLAW, "tools", "serve", "--config", str(config)]
    host = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: host.poll() is not None or is_listening(port), "the host listens")
        yield port
    finally:
        host.terminate()
        host.wait()


async def opened(port: int, number: int) -> list[Connection]:
    """Return connections to a host, each with a session."""
    connections = [await Connection.open(port, TOKEN) for _ in range(number)]
    for each in connections:
        await each.initialize()
    return connections


async def read(connection: Connection) -> float:
    """Read the page once; return the milliseconds.

    Raise ``RuntimeError`` where it is not what was read.
    """
    start = time.perf_counter()
    await connection.ask("tools/call", READ)
    spent = 1000 * (time.perf_counter() - start)
    if json.loads(connection.body)["result"]["structuredContent"]["content"] != CONTENT:
        raise RuntimeError(connection.body)
    return spent


async def read_file(root: Path, rounds: int) -> None:
    with served(root) as port:
        connections = await opened(port, 16)
        times: list[float] = []

        async def agent(connection: Connection) -> None:
            for _ in range(rounds):
                await asyncio.sleep(random.uniform(0.025, 0.075))
                times.append(await read(connection))

        await asyncio.gather(*map(agent, connections))
    print(f"read_file of 4 KB   16 connections   p50 {median(times):.1f} ms   {len(times)} calls")


async def hundred_sessions(root: Path, _rounds: int) -> None:
    with served(root) as port:
        connections = await opened(port, 100)
        times = await asyncio.gather(*map(read, connections))
    print(f"read_file of 4 KB   100 sessions at once   the last answers after {max(times):.0f} ms")


ROWS = (exec_shell, ten_gigabytes, read_file, hundred_sessions)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the calls")
    rounds = 20 if parser.parse_args().quick else 200
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "workspace"
        root.mkdir()
        Path(directory).chmod(0o755)
        if os.geteuid() == 0:
            os.chown(root, 65_534, 65_534)
        for row in ROWS:
            asyncio.run(row(root, rounds))


if __name__ == "__main__":
    main()
