"""The channel to a command: what is quoted of it, and what it may ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mcp.discovering import DiscoveryPod, tool

PLANTED = "planted-credential-4711"


@pytest.mark.requirement("discovery:broken-servers")
def test_a_command_that_is_not_there_is_an_error_with_its_name(web: DiscoveryPod) -> None:
    for command, why in (
        ("no-such-command", "No such file or directory"),
        ("./claw-pod.yml", "Permission denied"),
    ):
        web.write({"x-claw": {"mcp-stdio": {"command": command, "args": ["${KEY}"]}}})
        words = web.refuses(KEY=PLANTED)
        remedy = "install it, or correct 'mcp-stdio' in the pod file"
        assert words == f"error: web: the command '{command}' can't be started: {why}; {remedy}\n"


@pytest.mark.requirement("discovery:broken-servers")
def test_a_banner_on_standard_output_is_a_warning(web: DiscoveryPod) -> None:
    web.serves([tool("a")], fault="banner")
    result = web.discover()
    assert (result.exit_code, set(web.tools)) == (0, {"a"})
    assert (
        result.stderr
        == "warning: web: 2 lines on its standard output answered nothing, and were skipped\n"
    )


@pytest.mark.requirement("discovery:secrets", "discovery:broken-servers")
def test_the_last_words_of_a_server_are_redacted_and_bounded(web: DiscoveryPod) -> None:
    words = (
        "".join(f"line {number}\x1b[2J {'y' * 300}\n" for number in range(5000))
        + f"bad key {PLANTED}\n"
    )
    Path("words").write_text(words, encoding="utf-8")
    web.serves(fault="exit", words="words", service={"environment": {"K": "${K}"}})
    first, *lines = web.refuses(K=PLANTED).splitlines()
    assert first.startswith("error: web: it ended with exit code 3")
    assert lines[-1] == "  | bad key ••••••"
    assert len(lines) <= 10
    assert all(line.isprintable() and len(line) <= 204 for line in lines)
    web.serves(
        fault="refuses",
        words=f"{'z' * 190}{PLANTED} \x1b[2J",
        service={"environment": {"K": "${K}"}},
    )
    refused = web.refuses(K=PLANTED)
    assert "planted" not in refused
    assert refused.strip().isprintable()
    web.serves(fault="garbage", words="long", service={"environment": {"K": "${K}"}})
    Path("long").write_text(f"{'z' * 190}{PLANTED}{PLANTED}\n", encoding="utf-8")
    assert "planted" not in web.refuses("--timeout", "1.5", K=PLANTED)


@pytest.mark.requirement("discovery:server-requests")
def test_requests_of_the_server_are_answered_and_are_no_answers(web: DiscoveryPod) -> None:
    web.serves([tool("a")], fault="asks", answers="answers")
    result = web.discover()
    assert result.exit_code == 0, result.output
    assert (
        result.stderr
        == "warning: web: 2 lines on its standard output answered nothing, and were skipped\n"
    )
    assert set(web.tools) == {"a"}
    answers = Path("answers").read_text(encoding="utf-8").splitlines()
    assert len(answers) == 6
    first = dict(line[1:-1].split(": ", 1) for line in answers[:3])
    assert '"result": {}' in first['"ping"']
    assert '"result": {"roots": []}' in first['"roots/list"']
    assert '"code": -32601' in first['"sampling/createMessage"']
