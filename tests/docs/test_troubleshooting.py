"""The page of troubles quotes the real messages: those of the code, and those of
runtimes that do not trust the CA.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from claw_mediate.core.model_policy import Intervention
from tests.docs import code_says
from tests.docs.conftest import DocumentedPod
from tests.docs.pages import DOCS, ROOT, rows, spans
from tests.not_tested import need
from tests.waiting import eventually

PAGE = DOCS / "troubleshooting.md"
REFUSES_TO_START = {
    "claw_mediate/mitm": ("OptionsError", "RuntimeError", "ValueError"),
    "claw_mediate/providers": ("ValueError",),
    "claw_mediate/settings.py": ("ValueError",),
    "claw_mediate/state.py": ("ValueError",),
    "claw_mediate/telemetry": ("ValueError",),
    "claw_mediate/turns": ("ValueError",),
    "claw_mediate/agents": ("ValueError",),
    "claw_certs/key_file.py": ("UnfitError",),
    "claw_state/url.py": ("ValueError",),
    "claw_state/sqlite/schema.py": ("NotSupportedError", "DatabaseError"),
    "claw_state/valkey/client.py": ("ValueError",),
}
"""The errors that end the proxy at its start, and the modules that raise them."""
PASSED_ON = {"…: …", "cllama: …"}
ANOTHER_MITMPROXY = "this version of mitmproxy is built differently: "


def told(heading: str) -> set[str]:
    """Return the words in the code spans of the first column."""
    return spans(rows(PAGE, heading))


@pytest.mark.requirement("docs:codes")
def test_every_code_that_a_runner_can_be_told_is_in_the_page_and_no_other() -> None:
    assert told("## What the proxy answers") == code_says.answers()


@pytest.mark.requirement("docs:codes")
def test_codes_stand_with_the_status_that_they_come_with() -> None:
    page = [(row[0], row[1]) for row in rows(PAGE, "## What the proxy answers")]
    wrong = [
        (code, status)
        for code, status in code_says.statuses()
        if not any(f"`{code}`" in codes and status in known for codes, known in page)
    ]
    assert wrong == []


@pytest.mark.requirement("docs:codes")
def test_every_line_that_a_proxy_ends_with_at_its_start_is_in_the_page_and_no_other() -> None:
    lines = {
        text
        for place, errors in REFUSES_TO_START.items()
        for file in code_says.modules(place)
        for error in errors
        for text in code_says.raised(file, error)
    }
    lines |= code_says.said_in("claw_mediate/readiness.py", "missing")
    lines |= code_says.said_in("claw_mediate/mitm/gate/tls_ca.py", "pod_ca_problem")
    lines |= {
        text
        for text in code_says.raised(ROOT / "claw_contract/manifest.py", "ValueError")
        if "base URL" in text
    }
    lines.add(code_says.constants("claw_state/valkey/client.py")["_NOT_INSTALLED"])
    lines = {
        f"{ANOTHER_MITMPROXY}…" if line.startswith(ANOTHER_MITMPROXY) else line for line in lines
    }
    assert told("## It does not start") == lines - PASSED_ON


@pytest.mark.requirement("docs:codes")
def test_every_reason_not_to_be_ready_is_in_the_page_and_no_other() -> None:
    reasons = code_says.said_in("claw_mediate/readiness.py", "missing", "_not_ready")
    of_workers = code_says.said_in("claw_mediate/workers/worker.py", "find_problem")
    assert told("## `/ready` says 503") == reasons | of_workers


@pytest.mark.requirement("docs:codes")
def test_every_code_of_a_call_is_in_the_page_and_no_other() -> None:
    registry = {
        value
        for name, value in code_says.constants("claw_mediate/core/tool_result.py").items()
        if name.isupper()
    }
    assert told("## A tool's call fails") == registry | {"http_…"}


@pytest.mark.requirement("docs:codes")
def test_every_way_to_clamp_a_model_is_in_the_page_and_no_other() -> None:
    assert told("## Another model answered") == set(get_args(Intervention.__value__))


@pytest.mark.requirement("docs:codes")
def test_every_error_of_the_log_is_in_the_page_and_no_other() -> None:
    assert told("## The log says `error`") == code_says.events("error", "error")


@pytest.mark.requirement("docs:codes")
def test_every_intervention_about_money_and_withheld_tools_is_in_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = code_says.events("intervention", "intervention")
    assert named
    assert {name for name in named if f"`{name}`" not in page} == {
        "context_block_quarantined:…",
        "timezone_unknown",
    }
    for bypass in ("tool_choice_none", "several_choices_not_mediated", "request_not_read"):
        assert any(
            f'"{bypass}"' in file.read_text(encoding="utf-8")
            for file in code_says.modules("claw_mediate")
        )
        assert f"`{bypass}`" in page


UNTRUSTING = {
    "curl: (60)": ["curl", "-sS", "https://api.openai.com/v1/models"],
    "server certificate verification failed": ["git", "ls-remote", "https://api.openai.com/x"],
    "CERTIFICATE_VERIFY_FAILED": [
        sys.executable,
        "-c",
        (
            "import openai\n"
            "try: openai.OpenAI(api_key='x', max_retries=0).models.list()\n"
            "except openai.APIConnectionError as error: print(f'{type(error).__name__}: "
            "{error}', error.__cause__)"
        ),
    ],
    "SELF_SIGNED_CERT_IN_CHAIN": [
        "node",
        "-e",
        (
            "const {hostname, port} = new URL(process.env.HTTPS_PROXY);"
            "require('http').request({host: hostname, port, method: 'CONNECT', path: "
            "'api.openai.com:443'})"
            ".on('connect', (_, socket) => require('tls').connect({socket, servername: "
            "'api.openai.com'})"
            ".on('error', error => { console.log(error.code, error.message); process.exit(); "
            "})).end()"
        ),
    ],
}


@pytest.mark.requirement("docs:certificate-errors")
@pytest.mark.parametrize("words", UNTRUSTING)
def test_a_runtime_that_does_not_trust_the_ca_says_what_the_page_says(
    documented: DocumentedPod, tmp_path: Path, words: str
) -> None:
    command = UNTRUSTING[words]
    need(command[0])
    proxied = {
        "HTTPS_PROXY": documented.environment("proxy")["HTTPS_PROXY"],
        "PATH": documented.environment("proxy")["PATH"],
    }
    environment = proxied | {
        "https_proxy": proxied["HTTPS_PROXY"],
        "HOME": str(tmp_path),
        "LC_ALL": "C",
    }
    before = len(documented.pod.said())
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    said = done.stdout + done.stderr
    (row,) = [row for row in rows(PAGE, "## Certificates") if f"`{words}`" in row[0]]
    for promised in re.findall(r"`([^`]+)`", row[0]):
        assert promised in said
    if command[0] in ("curl", sys.executable):
        known = (
            "Client TLS handshake failed. The client does not trust the proxy's certificate for "
        )
        assert f"`{known}…`" in PAGE.read_text(encoding="utf-8")
        eventually(
            lambda: known in documented.pod.said()[before:],
            "mitmproxy says it of a client that tells why it leaves",
        )
