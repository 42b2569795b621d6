"""``claw discover`` at stdio servers, which are real children: what is written,
shown, kept back and refused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.discovering import SERVER, DiscoveryPod, tool, web

__all__ = ["web"]

READS = {"annotations": {"readOnlyHint": True}}
PLANTED = "planted-credential-4711"


@pytest.mark.requirement("discovery:stdio", "discovery:metadata")
def test_a_stdio_server_becomes_a_descriptor_that_compiles(web: DiscoveryPod) -> None:
    web.serves(
        [
            tool("fetch", "Fetch it.", **READS),
            tool("store", title="Store", outputSchema={"type": "object"}),
        ]
    )
    assert web.discovers() == (
        "web: 2 tools of listed 1.0\n  + fetch  read\n  + store  unknown\nwrote "
        ".claw-discovered/web.claw-describe.json\n"
    )
    snapshot = web.snapshot
    assert {**snapshot, "tools": [], "x-claw-discovery": {}} == {
        "version": 2,
        "mcp": {"transport": "streamable_http", "path": "/mcp"},
        "tools": [],
        "x-claw-discovery": {},
    }
    assert web.tools["fetch"] == tool("fetch", "Fetch it.", **READS)
    metadata = snapshot["x-claw-discovery"]
    assert (metadata["command"], metadata["args"][0]) == (sys.executable, str(SERVER))
    assert metadata["server"] == {"name": "listed", "version": "1.0"}
    assert metadata["digest"].startswith("sha256:")
    compiled = web.claw("compile")
    assert compiled.exit_code == 0, compiled.output
    tools = json.loads(Path(".claw-runtime/context/one/tools.json").read_text(encoding="utf-8"))[
        "tools"
    ]
    assert [(each["name"], each["execution"]["tool_name"]) for each in tools] == [
        ("web.fetch", "fetch"),
        ("web.store", "store"),
    ]


@pytest.mark.requirement("discovery:deterministic", "discovery:pages")
def test_the_same_tools_give_the_same_bytes_whatever_their_order_and_pages(
    web: DiscoveryPod,
) -> None:
    one, two, three = tool("a"), tool("b", size=2**70), tool("c")
    web.serves([one, two, three])
    web.discovers()
    before = web.file.read_bytes()
    assert web.discovers() == (
        "web: 3 tools of listed 1.0\nnothing has changed since "
        ".claw-discovered/web.claw-describe.json\n"
    )
    assert web.file.read_bytes() == before
    web.file.unlink()
    web.discovers()
    assert web.file.read_bytes() == before
    digest = web.snapshot["x-claw-discovery"]["digest"]
    web.serves([three], [], [two, one])
    web.file.unlink()
    web.discovers()
    assert [each["name"] for each in web.snapshot["tools"]] == ["a", "b", "c"]
    assert web.snapshot["x-claw-discovery"]["digest"] == digest


@pytest.mark.requirement("discovery:deterministic")
def test_exact_numbers_and_foreign_signs_survive_and_hidden_ones_show(web: DiscoveryPod) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"maximum": 2**64 + 1, "default": 0.1}, "é": {"$comment": "x\u202ey"}},
    }
    web.serves([{"name": "a", "description": "Grüße", "inputSchema": schema}])
    web.discovers()
    assert web.tools["a"]["inputSchema"] == schema
    text = web.file.read_text(encoding="utf-8")
    assert str(2**64 + 1) in text
    assert "Grüße" in text
    assert "x\\u202ey" in text


@pytest.mark.requirement("discovery:metadata", "discovery:environment")
def test_the_server_gets_values_and_the_snapshot_keeps_the_names(web: DiscoveryPod) -> None:
    Path("more.env").write_text("FROM_FILE=file-value\nBOTH=file\n", encoding="utf-8")
    environment = {"MINE": "${OURS}-x", "BOTH": "pod", "SHELL_TOO": "pod"}
    listed = tool("a", "<MINE> <BOTH> <FROM_FILE> <SHELL_ONLY> <SHELL_TOO>")
    echoes = ["MINE", "BOTH", "FROM_FILE", "SHELL_ONLY", "SHELL_TOO"]
    service = {"environment": environment, "env_file": "more.env"}
    web.serves([listed], service=service, echoes=echoes, args=("--label", "${OURS}"))
    result = web.discover(OURS="abc", SHELL_ONLY="shell", SHELL_TOO="shell")
    assert result.exit_code == 0, result.output
    assert web.tools["a"]["description"] == "abc-x pod file-value shell pod"
    assert web.snapshot["x-claw-discovery"]["args"][2:] == ["--label", "${OURS}"]
    assert "stale-snapshot" not in web.claw("check", OURS="another").output
    web.serves([listed], service=service, echoes=echoes, args=("--label", "${OTHER}"))
    stale = web.claw("check", OURS="abc", OTHER="abc").output
    assert "the snapshot of web is of another args; it is used all the same" in stale
    assert "claw discover web --update" in stale


@pytest.mark.requirement("discovery:changes", "discovery:update")
def test_a_snapshot_that_differs_is_shown_and_written_over_only_when_asked_for(
    web: DiscoveryPod,
) -> None:
    web.serves([tool("gone", **READS), tool("same"), tool("worse", **READS), tool("words")])
    web.discovers()
    before = web.file.read_bytes()
    schema = {"type": "object", "properties": {"limit": {}, "url": {"type": "integer"}}}
    changed = [
        {**tool("worse"), "inputSchema": schema},
        tool("words", "Other words."),
        tool("same"),
        tool("new"),
    ]
    web.serves(changed, server={"name": "listed", "version": "2.0"})
    refused = web.discover()
    difference = (
        "web: 4 tools of listed 2.0\n"
        "  - gone   read\n"
        "  + new    unknown\n"
        "  ~ words  unknown  (description)\n"
        "  ~ worse  read → unknown  (schema (+limit ~url), annotations)\n"
        "  ~ 'args' differs\n"
        "  ~ the server was listed 1.0, and is listed 2.0\n"
    )
    assert (refused.exit_code, refused.stdout) == (1, difference)
    assert refused.stderr == (
        "error: web is not as .claw-discovered/web.claw-describe.json has it: look at the "
        "difference,"
        " then: claw discover web --update\n"
    )
    assert web.file.read_bytes() == before
    assert (
        web.discovers("--update") == difference + "wrote .claw-discovered/web.claw-describe.json\n"
    )
    assert set(web.tools) == {"new", "same", "words", "worse"}
    assert web.discover("--check").exit_code == 0


@pytest.mark.requirement("discovery:check")
def test_check_writes_nothing_and_exits_1_for_drift_and_for_no_snapshot(web: DiscoveryPod) -> None:
    web.serves([tool("a")])
    words = web.refuses("--check")
    assert words == (
        "error: web has no snapshot .claw-discovered/web.claw-describe.json: run: claw "
        "discover web\n"
    )
    web.discovers()
    before = web.file.read_bytes()
    assert "nothing has changed" in web.discovers("--check")
    web.serves([tool("a"), tool("b")])
    drift = web.discover("--check")
    assert (drift.exit_code, "  + b  unknown\n" in drift.stdout) == (1, True)
    assert web.file.read_bytes() == before
    web.file.write_text("{", encoding="utf-8")
    assert web.discover("--check").exit_code == 1
    assert web.discover("--check", "--update").exit_code == 2
    assert web.discover("--update").exit_code == 0
    assert set(web.tools) == {"a", "b"}


@pytest.mark.requirement("discovery:json")
def test_programs_get_the_same_as_json(web: DiscoveryPod) -> None:
    web.serves([tool("a"), tool("bad.name")])
    first = web.discover("--json")
    assert json.loads(first.stdout) == {
        "service": "web",
        "file": ".claw-discovered/web.claw-describe.json",
        "status": "new",
        "written": True,
        "server": {"name": "listed", "version": "1.0"},
        "tools": ["a"],
        "changes": [
            {"tool": "a", "change": "added", "before": None, "after": "unknown", "parts": []}
        ],
        "origin_changes": [],
        "ungrantable": [
            {
                "name": "bad.name",
                "reason": web.snapshot["x-claw-discovery"]["ungrantable"][0]["reason"],
            }
        ],
        "warnings": [],
    }
    web.serves([tool("a", "Else.")])
    drift = web.discover("--json", "--check")
    assert drift.exit_code == 1
    data = json.loads(drift.stdout)
    assert (data["status"], data["written"], data["origin_changes"]) == (
        "changed",
        False,
        ["args", "ungrantable"],
    )
    assert data["changes"][0]["parts"] == ["description"]


@pytest.mark.requirement("discovery:ungrantable")
def test_what_cannot_be_granted_stays_with_its_reason_and_costs_no_other_tool(
    web: DiscoveryPod,
) -> None:
    deep: Any = {"type": "object"}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep}}
    listed = [
        tool("fine"),
        tool("with.dot"),
        tool("n" * 49),
        {"name": "no_schema"},
        {**tool("list_schema"), "inputSchema": {"type": "array"}},
        {
            **tool("wrong_schema"),
            "inputSchema": {"type": "object", "properties": {"a": {"type": "text"}}},
        },
        {
            **tool("outside"),
            "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://x.example/s"}}},
        },
        {**tool("deep"), "inputSchema": deep},
        tool("hint", annotations={"readOnlyHint": "yes"}),
        tool("twice", "One."),
        tool("twice", "Two."),
        tool("with_http", http={"method": "GET", "path": "/admin"}),
        tool("task", execution={"taskSupport": "required"}),
        tool("no_task", execution={"taskSupport": "optional"}),
        "no object",
    ]
    web.serves(listed)
    result = web.discover()
    assert result.exit_code == 0, result.output
    assert set(web.tools) == {"fine", "with_http", "no_task"}
    assert "http" not in web.tools["with_http"]
    left_out = web.snapshot["x-claw-discovery"]["ungrantable"]
    reasons = {each["name"]: each["reason"] for each in left_out}
    assert {name: reason.partition(":")[0] for name, reason in reasons.items()} == {
        "with.dot": "bad-tool-name",
        "n" * 49: "bad-tool-name",
        "no_schema": "bad-schema",
        "list_schema": "bad-schema",
        "wrong_schema": "bad-schema",
        "outside": "bad-schema",
        "deep": "json-syntax",
        "hint": "bad-annotation",
        "twice": "the server lists this name 2 times",
        "task": "it runs as a task of MCP only, and the proxy starts none",
        "tools[14]": "bad-tool-name",
    }
    assert reasons["no_schema"] == "bad-schema: inputSchema: Field required"
    assert next(each for each in left_out if each["name"] == "with.dot")["tool"] == tool("with.dot")
    assert "tool" not in next(each for each in left_out if each["name"] == "deep")
    warnings = result.stderr.splitlines()
    assert len(warnings) == len(left_out) == 12
    assert f"warning: web: the tool 'with.dot' can't be granted: {reasons['with.dot']}" in warnings
    assert web.claw("compile").exit_code == 0
    granted = json.loads(Path(".claw-runtime/context/one/tools.json").read_text(encoding="utf-8"))[
        "tools"
    ]
    assert [each["name"] for each in granted] == ["web.fine", "web.no_task", "web.with_http"]


@pytest.mark.requirement("discovery:ungrantable")
def test_a_grant_of_such_a_tool_is_refused_with_the_reason(web: DiscoveryPod) -> None:
    web.serves([tool("fine"), {**tool("odd"), "inputSchema": {"type": "array"}}])
    assert web.discover().exit_code == 0
    pod = Path("claw-pod.yml")
    pod.write_text(
        pod.read_text(encoding="utf-8").replace("allow: all", "allow: [odd]"), encoding="utf-8"
    )
    refused = web.claw("check")
    assert refused.exit_code == 1
    assert "error[unknown-tool]: web declares no tool 'odd'" in refused.stdout
    assert "the tool is there, and can't be granted: bad-schema: " in refused.stdout


@pytest.mark.requirement("discovery:secrets")
def test_no_credential_of_the_environment_is_written_or_printed(web: DiscoveryPod) -> None:
    listed = [
        tool("login", "Use <WEB_TOKEN> to log in.", title="<OF_THE_SHELL_API_KEY>"),
        {
            **tool("schema"),
            "inputSchema": {
                "type": "object",
                "properties": {"<WEB_TOKEN>": {"const": "x<IN_ARGS>x"}},
            },
        },
        tool("<WEB_TOKEN>"),
        tool("clean"),
    ]
    service = {"environment": {"WEB_TOKEN": "${WEB_TOKEN}"}}
    echoes = ["WEB_TOKEN", "OF_THE_SHELL_API_KEY", "IN_ARGS"]
    server = {"name": "of <WEB_TOKEN>", "version": "1"}
    web.serves(listed, service=service, echoes=echoes, server=server, args=("--key", "${IN_ARGS}"))
    planted = {
        "WEB_TOKEN": PLANTED,
        "OF_THE_SHELL_API_KEY": "planted-shell-key-1",
        "IN_ARGS": "planted-argument-1",
    }
    result = web.discover(**planted)
    assert result.exit_code == 0, result.output
    assert "planted" not in web.file.read_text(encoding="utf-8") + result.output
    assert web.tools["login"]["description"] == "Use •••••• to log in."
    assert web.snapshot["x-claw-discovery"]["server"]["name"] == "of ••••••"
    assert set(web.tools) == {"login", "schema", "clean"}
    told = [line for line in result.stderr.splitlines() if "it is redacted" in line]
    assert told == [
        (
            "warning: web: the tool 'login' holds a credential, or the value of a variable: "
            "it is redacted"
        ),
        (
            "warning: web: the tool 'schema' holds a credential, or the value of a variable: "
            "it is redacted"
        ),
        (
            "warning: web: the tool '••••••' holds a credential, or the value of a variable: "
            "it is redacted"
        ),
        (
            "warning: web: the server's name holds a credential, or the value of a variable: "
            "it is redacted"
        ),
    ]
    assert web.claw("check", **planted).exit_code == 0


@pytest.mark.requirement("discovery:by-hand")
def test_what_a_person_added_to_a_snapshot_stays(web: DiscoveryPod) -> None:
    web.serves([tool("a")])
    web.discovers()
    snapshot = web.snapshot | {
        "description": "Pages of the web",
        "auth": {"type": "none"},
        "unknown": 1,
    }
    web.file.write_text(json.dumps(snapshot), encoding="utf-8")
    web.serves([tool("a"), tool("b")])
    assert web.discover("--update").exit_code == 0
    assert (web.snapshot["description"], web.snapshot["auth"]) == (
        "Pages of the web",
        {"type": "none"},
    )
    assert "unknown" not in web.snapshot
    web.file.write_text(json.dumps(web.snapshot | {"unknown": 1}), encoding="utf-8")
    assert "  ~ only the form of the file differs\n" in web.discover("--check").stdout
    assert web.discover("--update").exit_code == 0
    assert web.discover("--check").exit_code == 0


@pytest.mark.requirement("discovery:atomic")
def test_a_snapshot_that_cannot_be_written_leaves_the_old_one(
    web: DiscoveryPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.serves([tool("a")])
    web.discovers()
    before = web.file.read_bytes()
    web.serves([tool("b")])

    def full(_self: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        refused = web.discover("--update")
    assert refused.exit_code == 1
    assert (
        "web.claw-describe.json:1:1: error[unwritable-output]: it can't be written: No "
        "space left on device"
    ) in refused.stderr
    assert web.file.read_bytes() == before
    assert [path.name for path in web.file.parent.iterdir()] == [web.file.name]


@pytest.mark.requirement("discovery:pod")
def test_only_what_this_server_needs_must_be_sound_in_the_pod(web: DiscoveryPod) -> None:
    web.serves([tool("a")], service={"environment": {"X": "x"}})
    pod = Path("claw-pod.yml")
    text = pod.read_text(encoding="utf-8")
    pod.write_text(
        text.replace(
            "image: runner", "image: runner\n    environment: {KEY: '${NOT_SET:?of another}'}"
        ),
        encoding="utf-8",
    )
    Path("AGENTS.md").unlink()
    assert web.discover().exit_code == 0
    web.serves(
        [tool("a")], service={"environment": {"X": "x"}}, args=("${NOT_SET:?set it to the key}",)
    )
    unset = web.discover()
    assert (unset.exit_code, unset.stdout) == (1, "")
    assert "NOT_SET is not set: set it to the key" in unset.stderr
    web.serves([tool("a")], service={"environment": {"X": "${NOT_SET:?set it to the key}"}})
    unset = web.discover()
    assert (unset.exit_code, unset.stdout) == (1, "")
    assert "NOT_SET is not set: set it to the key" in unset.stderr
    unknown = web.claw("discover", "wen")
    assert (unknown.exit_code, unknown.stdout) == (2, "")
    assert (
        unknown.stderr == "error: claw-pod.yml: the pod has no service 'wen'; did you mean 'web'?\n"
    )
    plain = web.claw("discover", "one")
    assert plain.exit_code == 1
    assert plain.stderr == (
        "error: claw-pod.yml: 'one' is no MCP server: give it 'x-claw.mcp-stdio' or 'x-claw.mcp',"
        " or say where it listens: --url http://HOST:PORT/mcp\n"
    )


@pytest.mark.requirement("discovery:pod")
def test_the_pod_file_is_named_by_option_and_its_directory_is_the_servers(
    web: DiscoveryPod, tmp_path: Path
) -> None:
    (tmp_path / "pod").mkdir()
    inner = DiscoveryPod(tmp_path / "pod")
    inner.serves([tool("a")], pid="here.pid")
    for option in ("--pod", "--file", "-f"):
        assert web.claw("discover", "web", option, "pod/claw-pod.yml").exit_code == 0
    assert (tmp_path / "pod" / "here.pid").exists()
    assert inner.tools.keys() == {"a"}


@pytest.mark.requirement("discovery:tools-file", "discovery:source")
def test_a_baked_list_counts_last_and_a_tool_that_cannot_be_granted_is_left_out_of_it(
    web: DiscoveryPod,
) -> None:
    Path("web").mkdir()
    listed = [
        tool("baked"),
        tool("with.dot"),
        tool("twice"),
        tool("twice"),
        {**tool("odd"), "inputSchema": {"type": "text"}},
    ]
    Path("web/.claw-tools.json").write_text(json.dumps({"tools": listed}), encoding="utf-8")
    web.write({"build": "web", "x-claw": {"mcp": {"path": "/mcp"}}})
    checked = web.claw("check")
    assert checked.exit_code == 0, checked.output
    assert checked.stdout.count("warning[tool-left-out]") == 4
    assert "the tool 'twice' is left out: the list has this name 2 times" in checked.stdout
    assert checked.stdout.endswith(
        "one: 1 tool\n  web.baked  unknown\nweb: tools from the list web/.claw-tools.json\n"
    )
    stdio = {
        "command": sys.executable,
        "args": [str(SERVER), json.dumps({"pages": [[tool("asked")]]})],
    }
    web.write({"build": "web", "x-claw": {"mcp-stdio": stdio, "mcp": {"path": "/mcp"}}})
    web.discovers()
    checked = web.claw("check")
    assert (
        "  web.asked  unknown\nweb: tools from the snapshot "
        ".claw-discovered/web.claw-describe.json\n"
    ) in checked.stdout
    described = {"version": 2, "mcp": {"path": "/mcp"}, "tools": [tool("declared")]}
    Path("web.json").write_text(json.dumps(described), encoding="utf-8")
    web.write({"build": "web", "x-claw": {"mcp-stdio": stdio, "describe-file": "web.json"}})
    assert web.claw("check").stdout.endswith(
        "  web.declared  unknown\nweb: tools from the descriptor web.json\n"
    )
    compiled = web.claw("compile")
    assert "web: tools from the descriptor web.json\nwrote " in compiled.stdout
