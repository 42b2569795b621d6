"""The log, in every form in which it may be kept."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

import pytest

from claw_audit.log_source import LogParser
from claw_audit.turns import UnreadableLineError
from tests.audit.proxy_files import ProxyFiles, call
from tests.audit.test_audit import counted, log_turn, report


def json_file(lines: list[bytes]) -> list[bytes]:
    """Return the lines as Docker's json-file keeps them, each in two parts."""
    parts = [(line[:40].decode(), line[40:].decode()) for line in lines]
    return [
        json.dumps({"log": part, "stream": "stdout", "time": "t"}).encode() + b"\n"
        for pair in parts
        for part in pair
    ]


KEPT: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "plain": lambda lines: lines,
    "crlf": lambda lines: [line.replace(b"\n", b"\r\n") for line in lines],
    "gzip": lambda lines: [gzip.compress(b"".join(lines))],
    "json-file": json_file,
    "compose": lambda lines: [b"cllama-1  | " + line for line in lines],
    "compose in colours": lambda lines: [b"\x1b[33mcllama-1  | \x1b[0m" + line for line in lines],
    "compose with times": lambda lines: [
        b"cllama-1  | 2026-01-01T00:00:00.000000001Z " + line for line in lines
    ],
    "docker with times": lambda lines: [
        b"2026-01-01T00:00:00.000000001Z " + line for line in lines
    ],
    "kubectl": lambda lines: [b"[pod/analyst-5d7/cllama] " + line for line in lines],
}


@pytest.mark.requirement("audit:log-forms")
@pytest.mark.parametrize("kept", KEPT)
def test_the_log_is_read_in_every_form_in_which_it_may_be_kept(
    files: ProxyFiles, kept: str
) -> None:
    log_turn(files, "t1", call())
    log_turn(files, "t2", call("desk.trade", "timeout"))
    files.log.write_bytes(b"".join(KEPT[kept](files.log.read_bytes().splitlines(keepends=True))))
    result = report(files, history=False, log=True)
    assert counted(result) == (2, 2, 1.0)
    assert (result.unread.lines, result.unread.foreign) == (0, 2 * 3 if kept == "json-file" else 0)


@pytest.mark.requirement("audit:log-forms")
@pytest.mark.parametrize(
    "who", [b"analyst-1  | ", b"evil-cllama-1  | ", b"[pod/cllama-1/runner] ", b"cllama says "]
)
def test_output_of_other_containers_is_not_counted(files: ProxyFiles, who: bytes) -> None:
    log_turn(files, "t1", call())
    lines = files.log.read_bytes().splitlines(keepends=True)
    files.log.write_bytes(
        b"".join([b"HTTP(S) proxy listening at *:8080.\n", *(who + line for line in lines)])
    )
    result = report(files, history=False, log=True)
    assert (result.turns.total, result.unread.lines, result.unread.foreign) == (
        0,
        0,
        1 + len(lines),
    )


@pytest.mark.requirement("audit:constant-memory")
@pytest.mark.parametrize("part", ["", "€"])
def test_any_number_of_small_parts_of_a_line_takes_bounded_memory(part: str) -> None:
    parser, line = LogParser(100_000), json.dumps({"log": part}).encode()
    for _ in range(500):
        assert parser.parse(line) is None
    with pytest.raises(UnreadableLineError, match="is longer"):
        list(map(parser.parse, [line] * 1000))
