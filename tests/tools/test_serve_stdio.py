"""``claw tools serve --stdio``, as a process."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from claw_mcp.protocol import CAPABILITIES_META, STATELESS_VERSION, VERSION_META
from tests.tools.hosting import CONFIG, TOKENS, TOOLS, environ_of, read_lines, request
from tests.waiting import eventually

ABOUT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}
INITIALIZE = request("initialize", ABOUT)
META = {"_meta": {VERSION_META: STATELESS_VERSION, CAPABILITIES_META: {}}}


class Pipes:
    """A host over stdio. Every line that it writes must be a JSON-RPC message."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.log = process, log
        self._in: IO[bytes] = process.stdin
        self._out: IO[bytes] = process.stdout

    def send(self, *messages: Any) -> None:
        for message in messages:
            self._in.write(message if isinstance(message, bytes) else json.dumps(message).encode())
            self._in.write(b"\n")
        self._in.flush()

    def read(self) -> Any:
        message = json.loads(self._out.readline())
        assert message["jsonrpc"] == "2.0"
        return message

    def ask(self, method: str, params: Any = None, request_id: Any = 1) -> Any:
        self.send(request(method, params, request_id))
        message = self.read()
        assert message["id"] == request_id
        return message

    def open(self) -> Any:
        result = self.ask("initialize", ABOUT, 0)["result"]
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def leave(self) -> int:
        self._in.close()
        assert self._out.read() == b""
        return self.process.wait(60)


@contextmanager
def speaking(home: Path, packages: Path, *arguments: str) -> Iterator[Pipes]:
    (home / "toolhost.yml").write_text(CONFIG)
    log = home / "stderr.log"
    command = [*TOOLS, "serve", "--stdio", *(arguments or ("--principal", "a"))]
    with log.open("wb") as errors:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        process = subprocess.Popen(command, cwd=home, env=environ_of(packages), **pipes)  # type: ignore[call-overload]
    try:
        yield Pipes(process, log)
    finally:
        process.kill()
        process.wait(60)
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()


@pytest.mark.requirement("host:stdio", "host:eras", "host:stdio-wire", "host:stdio-lines")
def test_one_principal_is_served_until_the_input_ends(packages: Path, tmp_path: Path) -> None:
    with speaking(tmp_path, packages) as host:
        discovered = host.ask("server/discover", META)["result"]
        assert discovered["supportedVersions"] == [STATELESS_VERSION]
        assert host.open()["protocolVersion"] == "2025-11-25"
        names = [tool["name"] for tool in host.ask("tools/list")["result"]["tools"]]
        assert names[0] == "made__echo"
        assert host.ask("ping")["result"] == {}
        noise = host.ask("tools/call", {"name": "made__noise"})["result"]["structuredContent"]
        assert noise == {"read": "", "exit_code": 0}
        stateless = host.ask(
            "tools/call", {"name": "made__echo", "arguments": {"text": "é"}, **META}, "x"
        )["result"]
        assert (stateless["structuredContent"], stateless["resultType"]) == (
            {"text": "é"},
            "complete",
        )
        for bad in (
            b"garbage",
            b"[]",
            b"{}",
            b"7",
            b"\xff",
            b'{"jsonrpc":"2.0","id":1}',
            b" " * (64 << 10) + b"x",
        ):
            host.send(bad)
            assert host.read()["error"]["code"] in {-32600, -32700}
        host.send(
            b"",
            b"  ",
            {"jsonrpc": "2.0", "method": "notifications/unknown"},
            {"jsonrpc": "2.0", "id": 5, "result": {}},
        )
        assert host.ask("tools/call", {"name": "made__none"})["error"]["code"] == -32602
        assert host.leave() == 0
        log = host.log.read_bytes()
    assert b"noise of print\nnoise of write\nnoise of a child\n" in log
    lines = read_lines(b"\n".join(line for line in log.splitlines() if line[:1] == b"{") + b"\n")
    assert [line["state"] for line in lines if line["type"] == "tool_host"] == [
        "listening",
        "stopped",
    ]
    calls = [
        (line["principal"], line["tool"], line["outcome"])
        for line in lines
        if line["type"] == "tool_host_call"
    ]
    assert calls == [
        ("a", "made__noise", "ok"),
        ("a", "made__echo", "ok"),
        ("a", "made__none", "not_found"),
    ]


@pytest.mark.requirement("host:stdio", "host:cancel")
def test_calls_run_beside_each_other_and_end_when_they_are_cancelled_or_the_client_leaves(
    packages: Path, tmp_path: Path
) -> None:
    with speaking(tmp_path, packages) as host:
        host.open()
        notes = [tmp_path / name for name in ("cancelled", "left")]
        for number, note in enumerate(notes, 7):
            host.send(
                request(
                    "tools/call", {"name": "made__wait", "arguments": {"text": str(note)}}, number
                )
            )
            eventually(
                lambda note=note: note.exists() and note.read_text() == "runs", "the tool runs"
            )
        assert host.ask("ping")["result"] == {}
        host.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        )
        message = host.read()
        assert (message["id"], message["error"]["code"]) == (7, -32800)
        assert [note.read_text() for note in notes] == ["ended", "runs"]
        host._in.close()
        assert host.process.wait(60) == 0
        assert notes[1].read_text() == "ended"


@pytest.mark.requirement("host:stop", "host:stdio")
def test_a_signal_ends_it_while_the_input_is_open(packages: Path, tmp_path: Path) -> None:
    with speaking(tmp_path, packages, "--principal", "b") as host:
        host.open()
        assert [tool["name"] for tool in host.ask("tools/list")["result"]["tools"]] == [
            "made__echo"
        ]
        host.process.send_signal(signal.SIGTERM)
        assert host.process.wait(60) == 0
        assert b'"stopped"' in host.log.read_bytes()


@pytest.mark.requirement("host:stdio", "host:log")
def test_the_input_may_be_a_file(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "toolhost.yml").write_text(CONFIG)
    call = request(
        "tools/call", {"name": "made__echo", "arguments": {"text": TOKENS["TOKEN_A"]}}, 2
    )
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    (tmp_path / "in").write_text(
        "".join(f"{json.dumps(each)}\n" for each in (INITIALIZE, initialized, call))
    )
    with (tmp_path / "in").open("rb") as read, (tmp_path / "out").open("wb") as written:
        command = [*TOOLS, "serve", "--stdio", "--principal", "a"]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environ_of(packages),
            stdin=read,
            stdout=written,
            stderr=subprocess.PIPE,
            check=False,
        )
    answers = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert (done.returncode, [answer["id"] for answer in answers]) == (0, [0, 2])
    assert TOKENS["TOKEN_A"].encode() not in done.stderr


@pytest.mark.requirement("host:stdio")
def test_a_client_that_reads_no_more_ends_it(packages: Path, tmp_path: Path) -> None:
    with speaking(tmp_path, packages) as host:
        host.open()
        host._out.close()
        host.send(request("ping", None, 1), request("initialize", ABOUT, 2))
        assert host.process.wait(60) == 0
        assert b'"stopped"' in host.log.read_bytes()
