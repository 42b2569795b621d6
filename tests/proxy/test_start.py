"""Starting: no flag is needed, a missing setting is reported in one line, and
unsafe options are refused.
"""

from __future__ import annotations

import os

import httpx2
import pytest

from tests.peers import JSONResponse, calls, text
from tests.proxy.pod import PROVIDER_KEY, Pod

BODY = {"model": "gpt-test", "messages": [{"role": "user", "content": "Go"}]}

FROZEN = (
    "import gc as _gc\n"
    "class _Tells:\n"
    "    def response(self, flow): flow.response.headers['x-frozen'] = "
    "str(_gc.get_freeze_count())\n"
    "addons.append(_Tells())\n"
)


TELLS_WHEN_PREPARED = """
import gc, sys
from mitmproxy import ctx
freeze = gc.freeze
def tell():
    freeze()
    addresses = ctx.master.addons.get("proxyserver").listen_addrs()
    print(f"listens when prepared: {len(addresses)}", file=sys.stderr, flush=True)
gc.freeze = tell
"""
"""A second script: the proxy is prepared when it freezes its objects."""


def fails_to_start(pod: Pod, *arguments: str) -> list[str]:
    """Start, wait for the end, and return the lines of the output about cllama."""
    pod.start(*arguments, wait=False)
    assert pod.process is not None
    assert pod.process.wait(timeout=20) != 0
    return [
        line
        for line in pod.said().splitlines()
        if "cllama" in line and "Loading script" not in line
    ]


@pytest.mark.requirement("start:missing-configuration")
def test_without_configuration_it_says_what_is_missing_in_one_line_and_ends(pod: Pod) -> None:
    pod.environment |= {"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": "", "CLAW_CONTEXT_ROOT": ""}
    (line,) = fails_to_start(pod)
    for named in (
        "/claw/context",
        "claw compile",
        "CLAW_CONTEXT_ROOT",
        "OPENAI_API_KEY",
        "providers.json",
    ):
        assert named in line


@pytest.mark.requirement("start:missing-configuration")
def test_a_context_directory_that_cannot_be_listed_is_named_in_one_line(pod: Pod) -> None:
    pod.agent("analyst")
    (pod.home / "context").chmod(0o111)
    if os.geteuid() == 0:  # root may list every directory unless these capabilities are dropped
        pod.launcher = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    (line,) = fails_to_start(pod)
    assert "can't be read" in line
    assert "Errno" not in line


@pytest.mark.requirement("start:missing-configuration")
@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"CLLAMA_KEEPALIVE_MS": "often"}, "cllama_keepalive_ms"),
        ({"CLLAMA_EGRESS": "perhaps"}, "cllama_egress"),
        ({"CLLAMA_EGRESS": ""}, "cllama_egress"),
        ({"CLLAMA_BUDGET_FAIL_MODE": ""}, "cllama_budget_fail_mode"),
        ({"CLLAMA_DISPATCH": "perhaps"}, "cllama_dispatch"),
        ({"CLLAMA_HOSTS": "a.test"}, "cllama_hosts"),
        ({"LISTEN_ADDR": "nowhere"}, "cllama_listen"),
        ({"CLAW_STATE": "/proc/nothing/state.db"}, "state"),
        ({"CLAW_SESSION_HISTORY_DIR": "/proc/nothing"}, "CLAW_SESSION_HISTORY_DIR"),
        ({"OPENAI_BASE_URL": "http://[::1"}, "OPENAI_BASE_URL"),
        ({"XAI_BASE_URL": "http://user:pass@host/v1"}, "XAI_BASE_URL"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_in_one_line(
    pod: Pod, environment: dict[str, str], named: str
) -> None:
    pod.agent("analyst", pod.tool("balance"))
    pod.environment |= environment
    (line,) = fails_to_start(pod)
    assert named in line
    assert PROVIDER_KEY not in line


@pytest.mark.requirement("start:missing-configuration")
def test_a_broken_providers_file_is_what_is_told_and_not_that_a_key_is_missing(pod: Pod) -> None:
    auth = pod.home / "auth"
    auth.mkdir()
    (auth / "providers.json").write_text(
        '{"providers": {"openai": {"api_key": 5}}}', encoding="utf-8"
    )
    (line,) = [line for line in fails_to_start(pod) if "providers_broken" not in line]
    assert "providers.json can't be used: providers.openai.api_key" in line
    assert "OPENAI_API_KEY" not in line


@pytest.mark.requirement("start:unsafe-options")
@pytest.mark.parametrize(
    "option",
    [
        "stream_large_bodies=1m",
        "connection_strategy=eager",
        "rawtcp=true",
        "ignore_hosts=api.openai.com",
        "tcp_hosts=.*",
        "tcp_timeout=10",
    ],
)
def test_an_option_that_would_let_requests_out_undecided_is_refused(pod: Pod, option: str) -> None:
    pod.agent("analyst", pod.tool("balance"))
    lines = fails_to_start(pod, "--set", option)
    assert any(option.partition("=")[0] in line for line in lines)


@pytest.mark.requirement("start:no-flags")
def test_with_no_flag_it_serves_both_entrances_and_nothing_else(running: Pod) -> None:
    running.provider.says(text("one"), text("two"))
    headers = {"authorization": f"Bearer {running.token()}"}
    base = httpx2.post(f"{running.url}/v1/chat/completions", json=BODY, headers=headers)
    with httpx2.Client(proxy=f"http://127.0.0.1:{running.proxy_port}", trust_env=False) as client:
        proxied = client.post(
            f"{running.provider.url}/v1/chat/completions", json=BODY, headers=headers
        )
    assert [answer.status_code for answer in (base, proxied)] == [200, 200]
    assert len(running.provider.received) == 2
    assert all(
        sent.headers["authorization"] == f"Bearer {PROVIDER_KEY}"
        for sent in running.provider.received
    )


@pytest.mark.requirement("start:prepared")
def test_what_the_first_requests_would_wait_for_is_done_before_it_listens(pod: Pod) -> None:
    for agent_id in ("analyst", "trader", "broken"):
        pod.agent(agent_id, pod.tool("balance"))
    (pod.home / "context" / "broken" / "metadata.json").write_text("{", encoding="utf-8")
    script = pod.own_script()
    script.write_text(script.read_text(encoding="utf-8") + FROZEN, encoding="utf-8")
    pod.start()
    loaded = {line["claw_id"] for line in pod.log() if line["type"] == "tool_manifest_loaded"}
    assert loaded == {"analyst", "trader"}
    assert [
        line["claw_id"] for line in pod.log() if line.get("error") == "agent_context_broken"
    ] == ["broken"]
    assert int(httpx2.get(f"{pod.url}/health").headers["x-frozen"]) > 10_000


@pytest.mark.requirement("start:prepared")
@pytest.mark.parametrize(
    ("start", "host"),
    [
        ("mitmdump", ""),
        ("mitmdump", "localhost:"),
        ("claw proxy", "127.0.0.1:"),
        ("workers", "127.0.0.1:"),
    ],
)
def test_listeners_that_the_modes_name_are_opened_when_the_proxy_is_prepared(
    pod: Pod, start: str, host: str
) -> None:
    pod.agent("analyst", pod.tool("balance"))
    tells = pod.home / "tells.py"
    tells.write_text(TELLS_WHEN_PREPARED, encoding="utf-8")
    modes = [f"reverse:http://pod.invalid@{host}{pod.port}", f"regular@{host}{pod.proxy_port}"]
    arguments = ["-s", str(tells), *(word for mode in modes for word in ("--mode", mode))]
    if start == "claw proxy":
        pod.start_claw(*arguments)
    else:
        pod.workers = 2 if start == "workers" else 1
        pod.start(*arguments)
    assert "listens when prepared: 0" in pod.said()
    assert "listens when prepared: 2" not in pod.said()
    assert httpx2.get(f"http://127.0.0.1:{pod.proxy_port}/health", trust_env=False).status_code


@pytest.mark.requirement("start:prepared")
def test_an_address_that_mitmdump_binds_before_it_loads_the_script_is_served_as_ever(
    pod: Pod,
) -> None:
    pod.agent("analyst", pod.tool("balance"))
    tells = pod.home / "tells.py"
    tells.write_text(TELLS_WHEN_PREPARED, encoding="utf-8")
    mode = f"reverse:http://pod.invalid@127.0.0.1:{pod.port}"
    pod.start("-s", str(tells), "--mode", mode)
    assert "listens when prepared: 1" in pod.said()
    pod.provider.says(text("ok"))
    assert pod.client().chat.completions.create(**BODY).choices[0].message.content == "ok"  # type: ignore[call-overload]


@pytest.mark.requirement("start:explicit-mode")
def test_explicit_modes_are_respected(pod: Pod) -> None:
    pod.agent("analyst", pod.tool("balance"))
    pod.start("--mode", f"reverse:http://pod.invalid@127.0.0.1:{pod.port}")
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"http://127.0.0.1:{pod.proxy_port}/health", trust_env=False)


@pytest.mark.requirement("start:options-over-environment")
def test_an_option_beats_its_environment_variable(pod: Pod) -> None:
    pod.agent("analyst", pod.tool("balance"))
    pod.environment["CLAW_CONTEXT_ROOT"] = "/nowhere"
    pod.start("--set", f"cllama_context={pod.home / 'context'}")
    pod.provider.says(text("ok"))
    assert pod.client().chat.completions.create(**BODY).choices[0].message.content == "ok"  # type: ignore[call-overload]


@pytest.mark.requirement("restart:continuity-and-chain")
def test_after_kill_9_the_conversation_and_the_history_chain_go_on(running: Pod) -> None:
    running.service.routes["GET", "/balance"] = JSONResponse({"usd": 1})
    running.provider.says(calls(("c1", "desk__balance", {})), text("You are rich."), text("Still."))
    client = running.client()
    client.chat.completions.create(**BODY)  # type: ignore[call-overload]
    running.kill()
    running.start()
    messages = [
        *BODY["messages"],
        {"role": "assistant", "content": "You are rich."},
        {"role": "user", "content": "Sure?"},
    ]
    client.chat.completions.create(model="gpt-test", messages=messages)  # type: ignore[call-overload]
    roles = [entry["role"] for entry in running.provider.received[-1].json["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    first, second = running.history("analyst")
    assert second["prev"] == first["hash"]


@pytest.mark.requirement("log:no-chatter")
def test_clients_and_streams_do_not_fill_mitmproxys_log_even_at_its_most_talkative(
    pod: Pod,
) -> None:
    pod.agent("analyst", pod.tool("balance"))
    pod.agent("plain")
    pod.start("--set", "termlog_verbosity=debug")
    pod.service.routes["GET", "/balance"] = JSONResponse({"usd": 1})
    pod.provider.says(calls(("c1", "desk__balance", {})), text("Done."), text("Passed."))
    for agent_id in ("analyst", "plain"):
        pod.client(agent_id).chat.completions.create(**BODY)  # type: ignore[call-overload]
    assert "client connect" in pod.said()
    for chatter in ("send_request_headers", "HTTP Request", "Streaming response"):
        assert chatter not in pod.said()
