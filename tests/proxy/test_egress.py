"""Ungoverned connections through the real proxy: never to this host or its networks."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.peers import Service, listening, text
from tests.proxy.pod import Pod, headers
from tests.waiting import eventually


@pytest.fixture
def allowing(pod: Pod) -> Pod:
    """Return a running pod that allows egress, and opens no private network."""
    pod.agent("plain")
    pod.environment["CLLAMA_EGRESS_NETWORKS"] = ""
    pod.start()
    return pod


@pytest.fixture
def neighbour() -> Iterator[Service]:
    """Yield a service of the host that only listens on loopback, at an address that
    is no provider's.
    """
    service = Service()
    service.start(listening("127.0.0.2", 0))
    yield service
    service.stop()


@pytest.mark.requirement("egress:no-private")
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.2", 403),
        ("2130706434", 403),
        ("0x7f000002", 403),
        ("127.2", 403),
        ("0.0.0.0", 403),
        ("localhost", 502),
        ("LOCALHOST.", 502),
    ],
)
def test_no_spelling_leads_an_ungoverned_request_to_loopback(
    allowing: Pod, neighbour: Service, host: str, status: int
) -> None:
    url = f"http://{host}:{neighbour.port}/balance"
    with httpx2.Client(
        proxy=f"http://127.0.0.1:{allowing.proxy_port}", trust_env=False, timeout=30
    ) as client:
        assert client.get(url).status_code == status
        with pytest.raises(httpx2.HTTPError):
            client.get(url.replace("http:", "https:"))
    assert neighbour.received == []


@pytest.mark.requirement("egress:no-private", "egress:refusals-logged")
def test_a_refused_destination_is_one_line_and_a_provider_there_is_asked(
    allowing: Pod, neighbour: Service
) -> None:
    with httpx2.Client(
        proxy=f"http://127.0.0.1:{allowing.proxy_port}", trust_env=False, timeout=30
    ) as client:
        for _ in range(5):
            client.get(f"http://127.0.0.2:{neighbour.port}/balance")
            client.get(f"http://localhost:{neighbour.port}/balance")

    eventually(lambda: "'localhost' is refused" in allowing.said(), "the refusals are logged")
    lines = [line for line in allowing.said().splitlines() if " is refused: " in line]
    assert [line.partition("cllama: ")[2].partition(" is refused")[0] for line in lines] == [
        "'127.0.0.2'",
        "'localhost'",
    ]

    allowing.provider.says(text("From loopback."))
    asked = {"model": "gpt-test", "messages": [{"role": "user", "content": "Hi"}]}
    answer = httpx2.post(
        f"{allowing.url}/v1/chat/completions", headers=headers(allowing), json=asked
    )
    assert answer.json()["choices"][0]["message"]["content"] == "From loopback."


@pytest.mark.requirement("egress:refusals-logged")
def test_egress_that_is_denied_is_one_line_for_each_host(pod: Pod) -> None:
    pod.agent("plain")
    pod.environment |= {"CLLAMA_EGRESS": "deny"}
    pod.start()
    with httpx2.Client(
        proxy=f"http://127.0.0.1:{pod.proxy_port}", trust_env=False, timeout=30
    ) as client:
        assert [
            client.get(f"http://{host}.test/").status_code for host in ("one", "two", "one")
        ] == [403] * 3

    lines = [line for line in pod.said().splitlines() if " is refused: " in line]
    assert len(lines) == 2
    assert all(line.endswith("it is not governed, and egress is denied") for line in lines)
