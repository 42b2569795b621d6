"""Runners that know of no proxy, in every form of deployment: the unchanged SDKs,
the CA, the token.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from tests.gateway.compiled import ANTHROPIC_KEY, OPENAI_KEY, TOOL_TOKEN
from tests.gateway.reaching import CHAT, OPENAI, over_tls, post
from tests.gateway.topology import PROVIDER_6, PROXY_6, Topology
from tests.not_tested import need
from tests.peers import calls, text
from tests.sdks.hearing import install
from tests.waiting import DEADLINE

UNAWARE = Path(__file__).with_name("unaware.py")
UNAWARE_JS = UNAWARE.parent.parent / "js" / "unaware.mjs"
ASKED = {"model": "gpt-test", "messages": [{"role": "user", "content": "Go"}]}


def sent(pod: Topology) -> list[tuple[str, str]]:
    """Return host and credential of each request to a provider."""
    heard = [asked.headers for asked in pod.provider.received]
    return [
        (headers["host"], headers.get("x-api-key") or headers["authorization"]) for headers in heard
    ]


# In one form: the imports of both SDKs take seconds, and those of JavaScript, below, stream in
# every form.
@pytest.mark.parametrize("every_form", ["kubernetes"], indirect=True, scope="package")
@pytest.mark.requirement("transparent:unaware")
def test_unmodified_sdks_with_nothing_but_the_ca_and_the_token_complete_mediated_streaming_turns(
    pod: Topology,
) -> None:
    pod.desk.routes["GET", "/balance"] = JSONResponse({"usd": 50_000})
    hidden, native = calls(("c1", "desk__balance", {})), calls(("n1", "shell", {}))
    pod.provider.says(hidden, text("You have it."), native, text("A file."))
    pod.provider.says(calls(("t1", "desk__balance", {})), text("You have that."))
    pod.provider.says(calls(("n2", "bash", {})))
    heard = json.loads(pod.runs(sys.executable, str(UNAWARE)))
    assert heard == [
        {"text": "You have it.", "calls": []},
        {"text": None, "calls": ["shell"]},
        {"text": "A file.", "calls": []},
        {"text": "You have that.", "calls": []},
        {"text": None, "calls": ["bash"]},
    ]
    assert (
        sent(pod)
        == [("api.openai.com", f"Bearer {OPENAI_KEY}")] * 4
        + [("api.anthropic.com", ANTHROPIC_KEY)] * 3
    )
    assert [asked.headers["authorization"] for asked in pod.desk.received] == [
        f"Bearer {TOOL_TOKEN}"
    ] * 2
    assert [line["status_code"] for line in pod.pod.history("analyst")[-len(heard) :]] == [
        200
    ] * len(heard)


@pytest.mark.requirement("transparent:unaware")
def test_the_sdks_of_javascript_do_too_in_every_form(pod: Topology) -> None:
    install()
    pod.desk.routes["GET", "/balance"] = JSONResponse({"usd": 50_000})
    pod.provider.says(calls(("c1", "desk__balance", {})), text("You have it."))
    pod.provider.says(calls(("t1", "desk__balance", {})), text("You have that."))
    assert json.loads(pod.runs(need("node"), str(UNAWARE_JS))) == ["You have it.", "You have that."]
    assert (
        sent(pod)
        == [("api.openai.com", f"Bearer {OPENAI_KEY}")] * 2
        + [("api.anthropic.com", ANTHROPIC_KEY)] * 2
    )
    assert [asked.headers["authorization"] for asked in pod.desk.received] == [
        f"Bearer {TOOL_TOKEN}"
    ] * 2


@pytest.mark.requirement("transparent:unaware")
def test_the_runners_environment_names_no_proxy_and_no_base_url(pod: Topology) -> None:
    values = set(pod.runner_env.values())
    assert values == {pod.token, "/mnt/ca-bundle.pem", "/mnt/ca-cert.pem"}


@pytest.mark.requirement("transparent:no-rights")
def test_the_proxy_itself_runs_without_root_and_without_a_capability(pod: Topology) -> None:
    assert pod.pod.process is not None
    lines = Path(f"/proc/{pod.pod.process.pid}/status").read_text(encoding="ascii").splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    assert {int(status[f"Cap{kind}"][0], 16) for kind in ("Eff", "Prm", "Inh", "Bnd", "Amb")} == {0}
    assert status["NoNewPrivs"] == ["1"]
    assert set(status["Uid"]) == {str(pod.pod.parts.uid)}


@pytest.mark.requirement("transparent:ipv6")
def test_over_ipv6_it_is_the_same(pod: Topology) -> None:
    pod.provider.says(text("By six."))
    address = PROXY_6 if pod.form == "compose" else PROVIDER_6
    assert (
        post(pod, f"https://[{address}]{CHAT}", ASKED).json()["choices"][0]["message"]["content"]
        == "By six."
    )
    assert pod.provider.received[0].headers["authorization"] == f"Bearer {OPENAI_KEY}"


@pytest.mark.requirement("transparent:ipv6")
def test_the_proxy_itself_finds_its_way_over_ipv6(pod: Topology) -> None:
    pod.gateway.run("ip", "neigh", "flush", "dev", "net2")
    connects = (
        f"import socket; socket.create_connection(({PROVIDER_6!r}, 8443), {DEADLINE}).close()"
    )
    pod.gateway.run(
        "setpriv",
        "--clear-groups",
        "--reuid",
        str(pod.pod.parts.uid),
        sys.executable,
        "-c",
        connects,
    )


@pytest.mark.requirement("transparent:http2")
def test_a_client_that_speaks_http2_is_mediated(pod: Topology) -> None:
    pod.desk.routes["GET", "/balance"] = JSONResponse({"usd": 1})
    pod.provider.says(calls(("c1", "desk__balance", {})), text("In frames."))
    answer = post(pod, f"https://{pod.leads}{CHAT}", ASKED, http2=True)
    assert answer.http_version == "HTTP/2"
    assert answer.json()["choices"][0]["message"]["content"] == "In frames."


@pytest.mark.requirement("transparent:websocket")
def test_a_websocket_to_a_provider_is_refused_with_426(pod: Topology) -> None:
    asked = (
        f"GET /v1/realtime HTTP/1.1\r\nhost: {OPENAI}\r\nconnection: upgrade, close\r\nupgrade: "
        "websocket\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: "
        f"AAAAAAAAAAAAAAAAAAAAAA==\r\nauthorization: Bearer {pod.token}\r\n\r\n"
    )
    assert over_tls(pod, pod.leads, OPENAI, asked.encode()).status == 426
    assert pod.provider.received == []


@pytest.mark.requirement("transparent:three-entrances")
def test_one_agent_uses_all_three_entrances_of_one_process_and_its_hidden_rounds_go_on(
    pod: Topology,
) -> None:
    pod.desk.routes["GET", "/balance"] = JSONResponse({"usd": 3})
    entrances = (
        {"url": f"https://{pod.leads}{CHAT}"},
        {"url": f"https://{OPENAI}{CHAT}", "proxy": f"http://{pod.front}:8082"},
        {"url": f"http://{pod.front}:8080{CHAT}"},
    )
    messages = [*ASKED["messages"]]
    for number, entrance in enumerate(entrances):
        pod.provider.says(calls((f"c{number}", "desk__balance", {})), text(f"Answer {number}."))
        answer = post(pod, entrance.pop("url"), ASKED | {"messages": messages}, **entrance)
        messages = [
            *messages,
            answer.json()["choices"][0]["message"],
            {"role": "user", "content": "And now?"},
        ]
    told = [
        said["tool_call_id"]
        for said in pod.provider.received[-1].json["messages"]
        if said["role"] == "tool"
    ]
    assert told == ["c0", "c1", "c2"]
    assert len(pod.desk.received) == 3
