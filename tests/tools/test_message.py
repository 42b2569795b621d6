"""``message`` through a real webhook receiver and a real Valkey."""

from __future__ import annotations

import asyncio
import builtins
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claw_contract.secret import Secret
from claw_contract.toolhost_file import ChannelSection
from claw_tools import message as message_module
from claw_tools.errors import ErrorCode
from claw_tools.message import message_tools
from claw_tools.tool import Tool
from tests.raw import Act, answers, bytes_only, hangs_after, resets_after
from tests.state.server import SharedState, shared_state
from tests.tools.web.calls import LOCAL, call, connections, fails, serving
from tests.waiting import eventually_async, nobody_listens

TOKEN, PASSWORD = "token-of-the-bus", "password-of-valkey"
ARGS = {"channel": "team", "chat_id": "12345", "content": "Done: \u20ac 5\n\U0001f980"}
SENT = {"status": "sent", "channel": "team", "chat_id": "12345", "content_length": 11}
UNKNOWN = "whether the message was delivered is unknown. Find out before you send it again."


def sender(principal: str = "", **channels: ChannelSection) -> Tool:
    [tool] = message_tools(channels, principal)
    return tool


def hook(url: str) -> ChannelSection:
    return ChannelSection(webhook=url, token=Secret(TOKEN))


def stream(url: str, name: str = "s") -> ChannelSection:
    return ChannelSection(redis=Secret(url), stream=name)


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[SharedState]:
    with shared_state(tmp_path / "server", PASSWORD) as server:
        yield server


def log(server: SharedState) -> ChannelSection:
    return stream(server.url, "claw:messages")


@pytest.mark.requirement("message:webhook")
@pytest.mark.parametrize("status", [200, 202, 204])
async def test_a_webhook_gets_one_post(status: int) -> None:
    async with serving(answers(status, b"")) as peer:
        assert await call(sender("analyst", team=hook(f"{peer.url}/in?x=1")), **ARGS) == SENT
        [request] = peer.received
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /in?x=1 HTTP/1.1\r\n")
    assert f"authorization: Bearer {TOKEN}".encode() in head
    assert b"content-type: application/json" in head
    assert json.loads(body) == {**ARGS, "principal": "analyst"}


@pytest.mark.requirement("message:webhook")
async def test_without_principal_and_token_none_is_sent() -> None:
    async with serving(answers(200, b"")) as peer:
        await call(sender(team=ChannelSection(webhook=peer.url)), **ARGS)
        head, _, body = peer.received[0].partition(b"\r\n\r\n")
    assert b"authorization" not in head
    assert json.loads(body) == ARGS


@pytest.mark.requirement("message:webhook", "message:secrets")
@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 404, 429])
async def test_a_webhook_that_refuses_or_redirects_fails(status: int) -> None:
    async with serving(answers(200, b"")) as other, serving() as peer:
        peer.script.append(answers(status, TOKEN.encode(), "text/plain", f"location: {other.url}"))
        error = await fails(sender(team=hook(peer.url)), **ARGS)
        assert (len(peer.received), len(other.received)) == (1, 0)
    assert error.message == f"the channel refused the message with status {status}."


@pytest.mark.requirement("message:once", "message:secrets")
@pytest.mark.parametrize(
    ("act", "why"),
    [
        (answers(503, b""), "answered with status 503"),
        (bytes_only(b""), "did not answer"),
        (resets_after(b"HTTP/1.1 2"), "did not answer"),
        (hangs_after(b""), "did not answer"),
    ],
)
async def test_a_webhook_that_breaks_off_leaves_the_outcome_unknown(
    act: Act, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_module, "_WEBHOOK_SECONDS", 0.5)
    async with serving(act) as peer:
        error = await fails(sender(team=hook(peer.url)), **ARGS)
        assert len(peer.received) == 1
    assert (error.code, error.message) == (
        ErrorCode.EXECUTION_FAILED,
        f"the channel {why}: {UNKNOWN}",
    )


@pytest.mark.requirement("message:once")
async def test_what_was_not_sent_is_said_to_be_not_sent() -> None:
    with nobody_listens() as url:
        error = await fails(sender(team=hook(url)), **ARGS)
        assert (
            error.message
            == "the channel can't be reached (it can't be connected to), and nothing was sent."
        )
        gone = await fails(sender(team=stream(url.replace("http", "redis"))), **ARGS)
        assert gone.message == "the channel can't be reached, and nothing was sent."
    assert (
        await fails(sender(team=hook("http://169.254.169.254/")), **ARGS)
    ).code is ErrorCode.PERMISSION_DENIED


@pytest.mark.requirement("message:list")
async def test_only_channels_on_the_list_are_sent_to() -> None:
    async with serving(answers(200, b"")) as peer:
        tool = sender(team=hook(peer.url), ops=hook(peer.url))
        with connections() as made:
            for channel in ("other", "TEAM", "team ", peer.url, "__class__"):
                error = await fails(tool, **{**ARGS, "channel": channel})
                assert error.code is ErrorCode.PERMISSION_DENIED
                assert error.message == "this channel is not on the list, which is: ops, team."
        assert made == []
    assert message_tools({}) == []


@pytest.mark.requirement("message:list")
@pytest.mark.parametrize(
    "change",
    [
        {"channel": 1},
        {"chat_id": ""},
        {"chat_id": "x" * 257},
        {"content": ""},
        {"content": "x" * 32_769},
        {"to": "x"},
        {"content": "\ud800"},
    ],
)
async def test_a_message_that_is_none_is_not_sent(change: dict[str, Any]) -> None:
    with connections() as made:
        error = await fails(sender(team=hook("http://127.0.0.1/")), **{**ARGS, **change})
    assert (error.code, made) == (ErrorCode.INVALID_ARGS, [])


@pytest.mark.requirement("message:list")
@pytest.mark.parametrize("url", ["", "bus:8080", "http://u:p@bus/", "file:///x"])
def test_a_channel_that_is_no_url_is_an_error_at_the_start(url: str) -> None:
    with pytest.raises(ValueError, match=r"message.channels.team.webhook is no"):
        sender(team=ChannelSection(webhook=url))
    with pytest.raises(ValueError, match=r"redis\s.*this is no redis:// or rediss:// URL"):
        stream("unix:///run/valkey")


@pytest.mark.requirement("message:stream")
async def test_a_stream_gets_the_message(valkey: SharedState) -> None:
    assert await call(sender("analyst", team=log(valkey)), **ARGS) == SENT
    answer = valkey.asks("XRANGE", "claw:messages", "-", "+").decode()
    fields = answer.split("\r\n")[6::2]
    assert fields == [part for pair in {**ARGS, "principal": "analyst"}.items() for part in pair]


@pytest.mark.requirement("message:stream")
async def test_a_stream_keeps_a_bounded_number(
    valkey: SharedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_module, "MAX_ENTRIES", 20)
    valkey.asks("CONFIG", "SET", "stream-node-max-entries", "10")  # the server trims whole nodes
    tool = sender(team=log(valkey))
    await asyncio.gather(*(call(tool, **ARGS) for _ in range(16)))
    for _ in range(30):
        await call(tool, **ARGS)
    assert 20 <= int(valkey.asks("XLEN", "claw:messages")[1:]) < 46
    await eventually_async(
        lambda: b"connected_clients:1\r\n" in valkey.asks("INFO", "clients"),
        "every connection has ended",
    )


@pytest.mark.requirement("message:stream", "message:secrets")
async def test_a_stream_that_refuses_fails_without_its_secrets(valkey: SharedState) -> None:
    valkey.asks("SET", "claw:messages", "text")
    error = await fails(sender(team=log(valkey)), **ARGS)
    assert error.message == "the channel refused the message: its operator must look at the stream."
    wrong = stream(valkey.url.replace(PASSWORD, "wrong"), "claw:messages")
    error = await fails(sender(team=wrong), **ARGS)
    assert error.message == "the channel can't be reached, and nothing was sent."


@pytest.mark.requirement("message:once")
async def test_a_server_that_stands_still_is_left(
    valkey: SharedState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_module, "_STREAM_SECONDS", 0.5)
    valkey.freeze()
    assert "nothing was sent" in (await fails(sender(team=log(valkey)), **ARGS)).message
    valkey.thaw()
    assert await call(sender(team=log(valkey)), **ARGS) == SENT
    assert valkey.asks("XLEN", "claw:messages") == b":1\r\n"


@pytest.mark.requirement("message:once")
@pytest.mark.parametrize("leaves", [True, False])
async def test_a_stream_that_breaks_off_leaves_the_outcome_unknown(
    leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_module, "_STREAM_SECONDS", 0.5)
    commands: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            commands.append(data)
            if b"XADD" in data:
                break
            writer.write(b"+OK\r\n" * data.count(b"SETINFO"))
        if not leaves:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, LOCAL, 0)
    async with server:
        url = f"redis://{LOCAL}:{server.sockets[0].getsockname()[1]}"
        error = await fails(sender(team=stream(url)), **ARGS)
    assert error.message == f"the channel did not answer: {UNKNOWN}"
    assert b"".join(commands).count(b"XADD") == 1


@pytest.mark.requirement("message:redis-extra")
async def test_without_the_client_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "redis":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.partition(".")[0] == "redis"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    error = await fails(sender(team=stream("redis://cache")), **ARGS)
    assert error.message.endswith("which is not installed: pip install '.[redis]' in a checkout.")
