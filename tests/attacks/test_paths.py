"""Hostile arguments, sent to a real server that records the request target byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_mediate.tools.executor import ToolExecutor
from tests import raw
from tests.mediate.tools.calling import READ, call

SHARP = [
    ".",
    "/",
    "\\",
    "%2e",
    "%2F",
    "%5c",
    "%00",
    "%",
    ";",
    "?x=1",
    "#",
    "\0",
    "\r\n",
    " ",
    "@",
    ":",
]
SHARP += [
    "..",
    "//",
    "\n",
    "http://evil/",
    "{b}",
    "{claw_id}",
    "é",
    "\u202e",
    "&",
    "=",
    "+",
    "😀",
    "a" * 300,
]
VALUE = st.lists(
    st.sampled_from(SHARP) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    max_size=4,
).map("".join)
NUMBER = st.sampled_from(
    [
        "1234567",
        "9007199254740993",
        "1e400",
        "-0.0",
        "1E+5",
        "0.10",
        "123456789012345678901234567890",
    ]
)
ARGUMENT = VALUE.map(json.dumps) | NUMBER


async def target(tmp_path: Path, text: str, path: str) -> str | None:
    """Return the request target that the service received, or None if it received no request."""
    peer = raw.Peer([raw.answers(200, b"{}")], prefix="/of-the-service")
    await peer.start()
    services = ToolExecutor(tmp_path)
    answer = await call(services, peer.url, text=text, path=path, annotations=READ)
    await services.close()
    await peer.stop()
    assert (answer.code, len(peer.received)) in {(None, 1), ("invalid_arguments", 0)}
    if not peer.received:
        return None
    line = peer.received[0].partition(b"\r\n")[0].decode("ascii")
    assert line.startswith("GET /of-the-service/")
    assert line.endswith(" HTTP/1.1")
    assert line.count(" ") == 2
    return line.split(" ")[1].removeprefix("/of-the-service")


@pytest.mark.requirement("attack:path-arguments")
@settings(max_examples=120)
@given(value=ARGUMENT)
async def test_a_path_argument_is_one_segment_on_the_wire_or_nothing_is_sent(
    tmp_path_factory: pytest.TempPathFactory, value: str
) -> None:
    came = await target(tmp_path_factory.getbasetemp(), f'{{"a":{value}}}', "/of/{a}/end")
    said = json.loads(value) if value.startswith('"') else value
    if came is None:
        assert unquote(said) in {"", ".", ".."} or set(unquote(said)) & set("/\\\0")
        return
    empty, of, segment, end = came.split("/")
    assert (empty, of, end) == ("", "of", "end")
    assert unquote(segment) == said
    assert unquote(unquote(segment)) not in {"", ".", ".."}
    assert not set(segment) & set("?#;\\")


@pytest.mark.requirement("attack:path-arguments")
@settings(max_examples=120)
@given(name=VALUE.filter(lambda text: text not in {"", "a", "claw_id"}), value=ARGUMENT)
async def test_a_query_argument_is_one_pair_on_the_wire(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: str
) -> None:
    arguments = f'{{"a":"x",{json.dumps(name)}:{value}}}'
    came = await target(tmp_path_factory.getbasetemp(), arguments, "/of/{a}")
    assert came is not None
    path, _, query = came.partition("?")
    said = json.loads(value) if value.startswith('"') else value
    assert path == "/of/x"
    assert "#" not in query
    assert parse_qsl(query, keep_blank_values=True, strict_parsing=True) == [(name, said)]
