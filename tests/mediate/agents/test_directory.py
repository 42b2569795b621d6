"""Agents, read from their directories and again after a change; a broken one fails alone."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from claw_mediate.agents.directory import AgentDirectory, UnreadableDirectoryError
from claw_mediate.telemetry.event_log import EventLog
from tests.events import known
from tests.waiting import eventually

METADATA = {"service": "analyst", "pod": "p", "token": "analyst:secret"}
HTTP = {
    "transport": "http",
    "service": "desk",
    "base_url": "http://desk:1",
    "method": "GET",
    "path": "/x",
}


def tool(name: str = "desk.x", **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "execution": HTTP, **more}


class ContextRoot:
    """A context root, and the events of its reader."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.events: list[dict[str, Any]] = []
        self.changed: list[str] = []
        self.agents = AgentDirectory(
            root, EventLog(lambda line: self.events.append(known(line))), self.changed.append
        )

    def write(
        self,
        agent: str,
        *tools: Any,
        root: Path | None = None,
        metadata: Any = METADATA,
        **manifest: Any,
    ) -> None:
        directory = (root or self.root) / agent
        directory.mkdir(parents=True, exist_ok=True)
        self.put(directory / "metadata.json", json.dumps(metadata))
        if tools or manifest:
            self.put(
                directory / "tools.json", json.dumps({"version": 1, "tools": tools, **manifest})
            )

    def put(self, file: Path, text: str) -> None:
        staged = file.with_name(f"{file.name}.new")
        staged.write_text(text, encoding="utf-8")
        staged.rename(file)

    def names(self, agent: str = "analyst") -> list[str] | None:
        found = self.agents.find(agent)
        return None if found is None else [tool.name for tool in found.tools]

    def context(self, agent: str = "analyst") -> tuple[list[str], str | None, list[str]]:
        found = self.agents.find(agent)
        assert found is not None
        feeds, blocks = [feed.name for feed in found.feeds], [block.id for block in found.blocks]
        return feeds, found.memory.service if found.memory else None, blocks

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]


@pytest.fixture
def pod(tmp_path: Path) -> ContextRoot:
    return ContextRoot(tmp_path / "context")


@pytest.mark.requirement("agents:found")
def test_an_agent_is_its_directory_with_or_without_tools(pod: ContextRoot) -> None:
    pod.write("analyst", tool(), policy={"max_rounds": 3})
    pod.write("clerk", metadata={**METADATA, "token_sha256": "0" * 64, "token": None})
    assert (pod.names(), pod.names("clerk"), pod.names("nobody")) == (["desk.x"], [], None)
    found = pod.agents.find("analyst")
    assert found is not None
    assert (found.limits.max_rounds, found.limits.total_seconds, found.limits.soft_seconds) == (
        3,
        120.0,
        108.0,
    )
    assert pod.agents.ids() == ["analyst", "clerk"]
    assert [event["tools_count"] for event in pod.said("tool_manifest_loaded")] == [1, 0]


@pytest.mark.requirement("live:policy")
def test_an_agent_streams_as_its_policy_says(pod: ContextRoot) -> None:
    pod.write("analyst", tool())
    pod.write("writer", tool(), policy={"stream": "live", "preamble": "hide"})
    modes = []
    for name in ("analyst", "writer"):
        found = pod.agents.find(name)
        assert found is not None
        modes.append((found.stream, found.preamble))
    assert modes == [("buffered", "show"), ("live", "hide")]


@pytest.mark.requirement("contract:agent-id")
@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../analyst", "analyst/", "a/../analyst", "Analyst", "analyst\0", "x" * 64],
)
def test_only_an_agent_id_becomes_a_path(pod: ContextRoot, name: str) -> None:
    pod.write("analyst", tool())
    assert pod.agents.find(name) is None
    assert pod.events == []


@pytest.mark.requirement("agents:reload")
def test_a_look_at_the_files_holds_for_its_time(pod: ContextRoot) -> None:
    pod.agents = AgentDirectory(pod.root, look_seconds=3600)
    assert pod.names() is None
    pod.write("analyst", tool())
    assert pod.names() == ["desk.x"]
    pod.write("analyst", tool("desk.y"))
    assert pod.names() == ["desk.x"]
    pod.agents.clear_cache()
    assert pod.names() == ["desk.y"]


@pytest.mark.requirement("agents:reload")
def test_files_are_looked_at_again_after_their_time(pod: ContextRoot) -> None:
    pod.agents = AgentDirectory(pod.root, look_seconds=0.05)
    pod.write("analyst", tool())
    assert pod.names() == ["desk.x"]
    pod.write("analyst", tool("desk.y"))
    eventually(lambda: pod.names() == ["desk.y"], "the new tool")
    shutil.rmtree(pod.root)
    eventually(lambda: pod.names() is None, "no agent")


@pytest.mark.requirement("agents:reload")
def test_a_changed_grant_takes_effect_at_the_next_look(pod: ContextRoot) -> None:
    pod.write("analyst", tool())
    assert pod.names() == ["desk.x"]
    first = pod.agents.find("analyst")
    assert pod.agents.find("analyst") is first
    pod.write("analyst", tool(), tool("desk.y"))
    assert pod.names() == ["desk.x", "desk.y"]
    (pod.root / "analyst" / "tools.json").unlink()
    assert pod.names() == []
    (pod.root / "analyst" / "metadata.json").unlink()
    assert pod.names() is None


@pytest.mark.requirement("agents:reload")
def test_a_file_of_the_same_size_and_time_is_another_file(pod: ContextRoot) -> None:
    pod.write("analyst", tool("desk.a"))
    assert pod.names() == ["desk.a"]
    file = pod.root / "analyst" / "tools.json"
    before = file.stat()
    pod.write("analyst", tool("desk.b"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert pod.names() == ["desk.b"]


@pytest.mark.requirement("agents:reload", "agents:reload-in-place")
def test_a_file_written_in_place_with_its_old_size_and_time_is_read_again(pod: ContextRoot) -> None:
    pod.write("analyst", tool("desk.a"))
    assert pod.names() == ["desk.a"]
    file = pod.root / "analyst" / "tools.json"
    before = file.stat()
    content = file.read_bytes()
    while file.stat().st_ctime_ns == before.st_ctime_ns:  # The clock of a file system is coarse
        file.write_bytes(content.replace(b"desk.a", b"desk.b"))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_size,
    )
    assert pod.names() == ["desk.b"]


@pytest.mark.requirement("agents:reload")
def test_the_whole_tree_may_be_swapped_by_one_rename(pod: ContextRoot, tmp_path: Path) -> None:
    pod.write("analyst", tool("desk.old"))
    assert pod.names() == ["desk.old"]
    pod.write("analyst", tool("desk.new"), root=tmp_path / "next")
    pod.root.rename(tmp_path / "before")
    assert pod.names() is None
    (tmp_path / "next").rename(pod.root)
    assert pod.names() == ["desk.new"]


def test_a_root_that_is_a_link_may_be_pointed_elsewhere(tmp_path: Path) -> None:
    pod = ContextRoot(tmp_path / "current")
    for name in ("one", "two"):
        pod.write("analyst", tool(f"desk.{name}"), root=tmp_path / name)
        (tmp_path / "link").symlink_to(tmp_path / name)
        (tmp_path / "link").rename(tmp_path / "current")
        assert pod.names() == [f"desk.{name}"]


BROKEN = [
    "",
    "{",
    "[]",
    '{"version":2}',
    '{"version":1,"policy":{"max_rounds":"8"}}',
    '{"version":1,"tools":{}}',
    "[" * 9999,
]


@pytest.mark.requirement("agents:broken")
@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_manifest_fails_that_agent_closed_with_one_event_until_it_changes(
    pod: ContextRoot, text: str
) -> None:
    pod.write("analyst", tool())
    pod.write("clerk", tool())
    pod.put(pod.root / "analyst" / "tools.json", text)
    assert [pod.names() for _ in range(3)] == [None] * 3
    assert [(event["claw_id"], event["error"], event["file"]) for event in pod.said("error")] == [
        ("analyst", "agent_context_broken", "tools.json")
    ]
    assert pod.names("clerk") == ["desk.x"]
    pod.put(pod.root / "analyst" / "tools.json", "{" + text)
    assert pod.names() is None
    assert len(pod.said("error")) == 2
    pod.write("analyst", tool())
    assert pod.names() == ["desk.x"]


@pytest.mark.requirement("agents:broken")
def test_broken_metadata_is_named_and_its_values_are_not(pod: ContextRoot) -> None:
    pod.write("analyst", metadata={**METADATA, "pod": ["sup3rs3cret"], "token": "sup3rs3cret"})
    assert pod.names() is None
    (event,) = pod.said("error")
    assert event["file"] == "metadata.json"
    assert "sup3rs3cret" not in json.dumps(event)


@pytest.mark.parametrize("make", ["directory", "loop", "fifo", "dangling"])
def test_a_path_that_is_not_a_file_fails_closed_without_waiting(
    pod: ContextRoot, make: str
) -> None:
    pod.write("analyst")
    file = pod.root / "analyst" / "tools.json"
    if make == "directory":
        file.mkdir()
    elif make == "fifo":
        os.mkfifo(file)
    else:
        file.symlink_to(file if make == "loop" else "nowhere")
    assert pod.names() == ([] if make == "dangling" else None)
    assert len(pod.said("error")) == (0 if make == "dangling" else 1)


@pytest.mark.requirement("contract:quarantine")
def test_a_tool_that_cannot_work_is_left_out_with_one_event(pod: ContextRoot) -> None:
    mcp = {"transport": "mcp", "service": "desk", "base_url": "http://desk:1", "tool_name": "t"}
    pod.write(
        "analyst",
        tool("desk.bad", annotations={"readOnly": "yes"}),
        tool("desk.remote", inputSchema={"$ref": "http://evil.test/s"}),
        tool("desk.wrong", inputSchema={"type": "nothing"}),
        tool("desk.odd", inputSchema={"$id": 5}),
        tool("desk.mcp", execution=mcp),
        tool("desk.good"),
    )
    assert [pod.names() for _ in range(2)] == [["desk.mcp", "desk.good"]] * 2
    assert sorted(event["intervention"] for event in pod.said("intervention")) == [
        f"managed_tool_quarantined:desk.{name}" for name in ("bad", "odd", "remote", "wrong")
    ]


@pytest.mark.requirement("mcp:ends")
def test_on_change_is_called_with_the_agent_that_changed(pod: ContextRoot) -> None:
    for agent in ("analyst", "trader"):
        pod.write(agent, tool("desk.good"))
        assert pod.names(agent) == ["desk.good"]
    pod.write("analyst", tool("desk.good"))
    assert pod.names() == ["desk.good"]
    assert pod.changed == [], "written again, and the same"
    pod.write("analyst", tool("desk.better"))
    assert [pod.names() for _ in range(2)] == [["desk.better"]] * 2
    assert pod.changed == ["analyst"]
    shutil.rmtree(pod.root / "trader")
    assert [pod.names("trader") for _ in range(2)] == [None, None]
    assert pod.changed == ["analyst", "trader"]


def test_the_secrets_of_an_agent_are_its_own_token_and_its_tools(pod: ContextRoot) -> None:
    auths = [
        {"type": "bearer", "token": "b34r3r"},
        {"type": "header", "header": "X-K", "token": "h34d3r"},
        {"type": "basic", "username": "u", "password": "p4ss"},
        {"type": "bearer", "token": {"secret": "file"}},
        {"type": "none"},
    ]
    pod.write(
        "analyst",
        *(tool(f"desk.t{n}", execution={**HTTP, "auth": auth}) for n, auth in enumerate(auths)),
    )
    found = pod.agents.find("analyst")
    assert found is not None
    assert {secret.reveal() for secret in found.secrets} == {
        "b34r3r",
        "h34d3r",
        "p4ss",
        "analyst:secret",
        "secret",
    }
    assert "b34r3r" not in repr(found)


def test_the_digest_names_the_compile_else_the_files(pod: ContextRoot) -> None:
    pod.write("analyst", tool())
    pod.write("clerk", tool(), metadata={**METADATA, "digest": "a" * 64})
    first, second = pod.agents.find("analyst"), pod.agents.find("clerk")
    assert first is not None
    assert second is not None
    assert second.digest == "a" * 64
    pod.write("analyst", tool("desk.y"))
    again = pod.agents.find("analyst")
    assert again is not None
    assert len({first.digest, again.digest}) == 2


def test_a_root_that_is_not_there_has_no_agents(tmp_path: Path) -> None:
    pod = ContextRoot(tmp_path / "nowhere")
    assert pod.names() is None
    assert pod.agents.ids() == []


FEED = {
    "name": "prices",
    "source": "market",
    "path": "/p",
    "ttl": 5,
    "url": "http://market:1/p?x=1",
    "auth": "f33d-t0k3n",
}
MEMORY = {
    "version": 1,
    "service": "mem",
    "base_url": "http://mem:1",
    "recall": {"path": "/recall"},
    "auth": {"type": "bearer", "token": "m3m-t0k3n"},
}


@pytest.mark.requirement("agents:reload")
def test_context_files_are_read_again_when_they_change_and_their_credentials_are_secrets(
    pod: ContextRoot,
) -> None:
    pod.write("analyst")
    home = pod.root / "analyst"
    assert pod.context() == ([], None, [])
    pod.put(home / "feeds.json", json.dumps([FEED]))
    pod.put(home / "memory.json", json.dumps(MEMORY))
    pod.put(
        home / "context-blocks.json",
        json.dumps({"version": 1, "blocks": [{"id": "a", "text": "A"}]}),
    )
    assert pod.context() == (["prices"], "mem", ["a"])
    found = pod.agents.find("analyst")
    assert found is not None
    assert {secret.reveal() for secret in found.secrets} == {
        "f33d-t0k3n",
        "m3m-t0k3n",
        "analyst:secret",
        "secret",
    }
    assert "t0k3n" not in repr(found)
    for name in ("feeds", "memory", "context-blocks"):
        (home / f"{name}.json").unlink()
    assert pod.context() == ([], None, [])


BAD_URLS = [
    "",
    "ftp://a/b",
    "http://",
    "http://u:p@a/b",
    "http://a/b#c",
    "http://a/b c",
    "http://a\\b/",
    "http://a:0/",
    "//a/b",
]


@pytest.mark.requirement("context:broken-file")
@pytest.mark.requirement("feeds:url")
@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("feeds.json", "{}"),
        ("feeds.json", json.dumps([{**FEED, "ttl": -1}])),
        ("feeds.json", json.dumps([{**FEED, "auth": ""}])),
        *(("feeds.json", json.dumps([{**FEED, "url": url}])) for url in BAD_URLS),
        ("memory.json", json.dumps({**MEMORY, "recall": {"path": "/r", "timeout_ms": 0}})),
        ("memory.json", json.dumps({**MEMORY, "base_url": "http://u:p@mem"})),
        ("context-blocks.json", '{"version":2}'),
        ("context-blocks.json", '{"version":1,"blocks":[{"id":"a","text":1}]}'),
        (
            "metadata.json",
            json.dumps({**METADATA, "budget": {"window": "1 day", "max_requests": 1}}),
        ),
    ],
)
def test_a_broken_context_file_fails_that_agent_closed_without_its_values(
    pod: ContextRoot, file: str, text: str
) -> None:
    pod.write("analyst", tool())
    pod.write("clerk", tool())
    pod.put(pod.root / "analyst" / file, text)
    assert [pod.names() for _ in range(3)] == [None] * 3
    assert [(event["claw_id"], event["file"]) for event in pod.said("error")] == [("analyst", file)]
    assert "u:p" not in json.dumps(pod.events)
    assert pod.names("clerk") == ["desk.x"]


@pytest.mark.requirement("context:quarantine")
def test_a_block_that_is_off_or_cannot_be_placed_is_left_out(pod: ContextRoot) -> None:
    pod.write("analyst")
    blocks = [
        {"id": "off", "text": "x", "enabled": False, "cadence": "never"},
        {"id": "odd", "text": "x", "cadence": "weekly"},
        {"id": "nowhere", "text": "x", "placement": "top"},
        {"id": "blank", "text": "x", "kind": "", "cadence": "", "placement": " ", "max_chars": 0},
        {
            "id": "on",
            "text": "x",
            "enabled": True,
            "cadence": "always",
            "placement": "before_feeds",
        },
    ]
    pod.put(
        pod.root / "analyst" / "context-blocks.json", json.dumps({"version": 1, "blocks": blocks})
    )
    assert [pod.context()[2] for _ in range(2)] == [["blank", "on"]] * 2
    assert [(event["intervention"], event["reason"]) for event in pod.said("intervention")] == [
        ("context_block_quarantined:odd", "unsupported_cadence"),
        ("context_block_quarantined:nowhere", "unsupported_placement"),
    ]


@pytest.mark.requirement("connections:unreadable-directory")
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.EACCES])
def test_a_directory_that_cannot_be_opened_now_does_not_remove_its_agent(
    pod: ContextRoot, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    pod.write("analyst", tool())
    assert pod.names() == ["desk.x"]

    def fail(*_: Any, **__: Any) -> int:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as broken:
        broken.setattr(os, "open", fail)
        with pytest.raises(UnreadableDirectoryError, match=os.strerror(code)):
            pod.names()

    assert pod.names() == ["desk.x"]
    assert pod.changed == []
    assert len(pod.said("tool_manifest_loaded")) == 1


@pytest.mark.requirement("connections:unreadable-directory")
def test_a_file_that_cannot_be_read_now_disables_nobody(
    pod: ContextRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.write("analyst", tool())
    assert pod.names() == ["desk.x"]
    pod.write("analyst", tool("desk.y"))
    opened = os.open

    def fail_for_files(path: Any, *rest: Any, **more: Any) -> int:
        if "dir_fd" in more:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(path, *rest, **more)

    with monkeypatch.context() as broken:
        broken.setattr(os, "open", fail_for_files)
        with pytest.raises(UnreadableDirectoryError):
            pod.names()

    assert pod.changed == []
    assert pod.names() == ["desk.y"]
    assert pod.changed == ["analyst"]
