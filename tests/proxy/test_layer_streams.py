"""Streams to a runner: cut on purpose, and pulled no further than a slow runner reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.proxy.frames import FrameRunner
from tests.proxy.looking import SavingPod
from tests.proxy.pod import ROOT, Pod, headers, pod_at
from tests.proxy.unread import UnreadAnswer
from tests.waiting import eventually

SCRIPT = ROOT / "tests" / "proxy" / "scripted_streams.py"
PATH = "/v1/chat/completions"
KIB, MIB = 1 << 10, 1 << 20
SHOWN = 4 * MIB
"""Bytes of an answer that a flow shows."""
CHUNK, COUNT = 16 * KIB, 64
"""A stream of 1 MiB."""
HELD = 256 * KIB
"""Bytes that the proxy may hold of one stream."""
STREAMS = 32


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """Yield a pod that nobody observes, and whose answers the tests script."""
    with pod_at(tmp_path_factory.mktemp("pod"), script=SCRIPT) as pod:
        pod.agent("analyst", pod.tool("balance"))
        pod.start()
        yield pod


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """Yield the same with a kernel that takes little for a runner."""
    with pod_at(tmp_path_factory.mktemp("pod"), script=SCRIPT) as pod:
        pod.environment["TEST_NARROW"] = "1"
        pod.agent("analyst", pod.tool("balance"))
        pod.start()
        yield pod


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SavingPod]:
    """Yield the same with flows that are saved."""
    with pod_at(tmp_path_factory.mktemp("pod"), script=SCRIPT) as pod:
        pod.agent("analyst", pod.tool("balance"))
        pod.start("-w", str(pod.home / "flows"))
        yield SavingPod(pod)


def target(name: str, size: int, count: int, end: str = "whole", *, more: str = "") -> str:
    return f"{PATH}?name={name}&size={size}&count={count}&end={end}{more}"


def raw(pod: Pod, path: str, version: str = "HTTP/1.1") -> bytes:
    lines = [
        f"POST {path} {version}",
        "host: x",
        f"authorization: Bearer {pod.token()}",
        "content-type: application/json",
        "content-length: 2",
    ]
    return "\r\n".join([*lines, "", "{}"]).encode()


def fields(pod: Pod) -> list[tuple[str, str]]:
    return list(headers(pod, "analyst").items())


def post(pod: Pod, path: str) -> httpx2.Response:
    return httpx2.post(pod.url + path, headers=headers(pod, "analyst"), content=b"{}", timeout=30)


def state(pod: Pod) -> dict[str, Any]:
    found: dict[str, Any] = httpx2.get(f"{pod.url}/made", timeout=30).json()
    return found


def made(pod: Pod, name: str) -> int:
    """Return how many chunks of a stream have been made."""
    return int(state(pod)["made"].get(name, 0))


def settled(pod: Pod, names: list[str]) -> dict[str, int]:
    """Return how many chunks of each stream have been made, once none makes more.

    A stream that nothing holds up would make all of its chunks while these requests are served.
    """

    def unchanged() -> dict[str, int] | None:
        counts = [state(pod)["made"] for _ in range(10)]
        begun = all(name in counts[0] for name in names)
        return counts[0] if begun and counts[0] == counts[-1] else None

    return eventually(unchanged, "no stream goes on")


@pytest.mark.requirement("live:cut")
def test_a_cut_answer_ends_without_its_last_chunk_over_http_1_1(scripted: Pod) -> None:
    before = scripted.said()
    with UnreadAnswer(scripted.port, raw(scripted, target("cut-1", 10, 3, "cut"))) as runner:
        assert not runner.take_rest()
    head, _, body = runner.read.partition(b"\r\n\r\n")
    assert b"x-can-be-cut: true" in head
    assert body.endswith(b"x\r\n")
    assert body.count(b"x") == 30
    assert "broke off" not in scripted.said().removeprefix(before)


@pytest.mark.requirement("live:cut")
def test_an_sdk_never_takes_a_cut_answer_for_a_whole_one(scripted: Pod) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        post(scripted, target("cut-2", 10, 3, "cut"))


@pytest.mark.requirement("live:cut")
def test_a_cut_answer_is_a_reset_of_its_stream_only_over_http_2(scripted: Pod) -> None:
    with FrameRunner(scripted) as runner:
        cut = runner.ask("POST", target("cut-3", 10, 3, "cut"), fields(scripted), [b"{}"])
        assert (cut.reset, cut.ended, bytes(cut.body)) == (True, False, b"x" * 30)
        assert cut.all("x-can-be-cut") == ["true"]
        whole = runner.ask("POST", target("whole-3", 10, 3), fields(scripted), [b"{}"])
        assert (whole.reset, whole.ended, bytes(whole.body)) == (False, True, b"x" * 30 + b"end")


@pytest.mark.requirement("live:cut")
def test_a_stream_whose_runner_has_not_ended_its_request_is_reset_too(scripted: Pod) -> None:
    path = target("cut-4", 10, 3, "cut").replace(PATH, "/early")
    with FrameRunner(scripted) as runner:
        cut = runner.send("POST", path, fields(scripted), [b"{"], end=False)
        runner.read_until(lambda: cut.ended or cut.reset)
        assert (cut.reset, cut.ended, bytes(cut.body)) == (True, False, b"x" * 30)
        other = runner.ask("POST", target("other-4", 10, 3), fields(scripted), [b"{}"])
        assert other.ended


@pytest.mark.requirement("live:cut")
def test_an_answer_that_breaks_off_by_a_bug_is_cut_and_logged_as_an_error(scripted: Pod) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        post(scripted, target("fails", 10, 3, "fails"))
    eventually(lambda: "an answer broke off: ValueError" in scripted.said(), "it is logged")


@pytest.mark.requirement("live:http-1-0")
def test_a_runner_of_http_1_0_is_known_to_see_no_cut(scripted: Pod) -> None:
    request = raw(scripted, target("old", 10, 3), "HTTP/1.0")
    with UnreadAnswer(scripted.port, request) as runner:
        runner.take_rest()
    head, _, body = runner.read.partition(b"\r\n\r\n")
    assert b"x-can-be-cut: false" in head
    assert b"transfer-encoding" not in head
    assert body == b"x" * 30 + b"end"


@pytest.mark.requirement("live:cut-is-shown")
def test_the_flow_of_a_cut_answer_says_so_and_shows_what_was_sent(observed: SavingPod) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        post(observed.pod, target("shown-cut", 10, 3, "cut"))
    flow = eventually(lambda: observed.found("~u shown-cut"), "it is saved")[-1]
    assert flow.error is not None
    assert flow.error.msg == "cllama: the answer was cut: the provider broke off"
    assert flow.response is not None
    assert flow.response.content == b"x" * 30


@pytest.mark.requirement("live:memory")
def test_a_flow_shows_the_first_4_mib_of_a_stream_and_says_that_it_had_more(
    observed: SavingPod,
) -> None:
    assert len(post(observed.pod, target("long", 64 * KIB, 96)).content) == 6 * MIB + 3
    flow = eventually(lambda: observed.found("~u name=long"), "it is saved")[-1]
    assert flow.response is not None
    assert flow.response.content == b"x" * SHOWN
    assert flow.comment == f"({2 * MIB + 3} bytes of the answer are not shown)"


@pytest.mark.requirement("live:memory")
def test_a_flow_shows_a_short_stream_whole(observed: SavingPod) -> None:
    post(observed.pod, target("short", 10, 3))
    flow = eventually(lambda: observed.found("~u name=short"), "it is saved")[-1]
    assert flow.response is not None
    assert (flow.response.content, flow.comment) == (b"x" * 30 + b"end", "")


@pytest.mark.requirement("live:memory")
def test_where_nobody_observes_flows_nothing_of_a_long_stream_is_kept(scripted: Pod) -> None:
    post(scripted, target("warm", 64 * KIB, 16))
    before = scripted.memory(anew=True)
    read = 0
    with httpx2.stream(
        "POST",
        scripted.url + target("endless", 64 * KIB, 1024),
        headers=headers(scripted, "analyst"),
        content=b"{}",
        timeout=60,
    ) as answer:
        for part in answer.iter_raw():
            read += len(part)
    assert read == 64 * MIB + 3
    assert scripted.memory() - before < 16 * MIB


@pytest.mark.requirement("live:back-pressure")
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_a_stream_is_made_no_further_than_its_slow_runner_reads(narrow: Pod, version: str) -> None:
    name = f"slow-{version[-1]}"
    request = raw(narrow, target(name, CHUNK, COUNT), version)
    with UnreadAnswer(narrow.port, request) as runner:
        eventually(runner.has_begun, "it has begun")
        for _ in range(100):
            runner.take(KIB)
        ahead = settled(narrow, [name])[name] * CHUNK - len(runner.read)
        assert ahead <= HELD
        runner.take_rest()
    assert made(narrow, name) == COUNT


@pytest.mark.requirement("live:back-pressure")
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_of_32_streams_that_nobody_reads_little_is_held(narrow: Pod, version: str) -> None:
    names = [f"unread-{version[-1]}-{number}" for number in range(STREAMS)]
    with contextlib.ExitStack() as stack:
        for name in names:
            request = raw(narrow, target(name, CHUNK, COUNT), version)
            stack.enter_context(UnreadAnswer(narrow.port, request))
        held = settled(narrow, names)
        assert max(held[name] * CHUNK for name in names) <= HELD
    eventually(lambda: {*names} <= {*state(narrow)["over"]}, "they end with their runners")


@pytest.mark.requirement("live:back-pressure")
def test_of_32_streams_of_http_2_without_a_window_little_is_held(narrow: Pod) -> None:
    names = [f"deaf-{number}" for number in range(STREAMS)]
    with FrameRunner(narrow) as runner:
        runner.deaf = True
        streams = [
            runner.send("POST", target(name, CHUNK, COUNT), fields(narrow), [b"{}"])
            for name in names
        ]
        received = 65_535  # HTTP/2's window of a new connection
        runner.read_until(lambda: sum(len(stream.body) for stream in streams) >= received)
        held = settled(narrow, names)
        assert sum(held[name] * CHUNK for name in names) - received <= STREAMS * HELD
    eventually(lambda: {*names} <= {*state(narrow)["over"]}, "they end with their runner")


@pytest.mark.requirement("live:late-keepalive")
@pytest.mark.parametrize("is_slow", [True, False])
def test_a_keepalive_that_comes_due_while_the_runner_is_behind_is_not_sent(
    narrow: Pod, is_slow: bool
) -> None:
    name = f"beat-{is_slow}"
    request = raw(narrow, target(name, 60 * KIB, 2, more="&beat=1"))
    with UnreadAnswer(narrow.port, request) as runner:
        eventually(runner.has_begun, "it has begun")
        eventually(lambda: made(narrow, name) == 2, "both chunks are made")
        if not is_slow:
            runner.take(120 * KIB)
        httpx2.get(f"{narrow.url}/go")
        eventually(lambda: made(narrow, name) == 3, "a keepalive is made")
        if is_slow:
            runner.take(120 * KIB)
        httpx2.get(f"{narrow.url}/go")
        assert runner.take_rest()
    assert runner.read.endswith(b"end\r\n0\r\n\r\n")
    assert (b": beat" in runner.read) == (not is_slow)
