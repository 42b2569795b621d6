"""The settings of a tools host, in the pod file and in a file of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from tests.compile.composed import compiled
from tests.compile.tools_host_pod import codes_of, config, pod


@pytest.mark.requirement("toolspod:settings-file")
def test_settings_come_from_a_file_too_and_the_pod_file_wins_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "toolhost.yml").write_text(
        "toolhost:\n  listen: {port: 1}\n  principals: {me: {workspace: .}}\n  limits: "
        "{read_bytes: 2MiB, write_bytes: 3MiB}\n"
        "tools:\n  exec: {enabled: true}\n  url_policy: {ports: [8443]}\n",
        encoding="utf-8",
    )
    settings = "{file: toolhost.yml, url_policy: {ports: [443]}, limits: {read_bytes: 1MiB}}"
    compiled(tmp_path, pod(settings, one="[exec_shell]"))
    made = config(tmp_path)
    assert made["tools"] == {"exec": {"enabled": True}, "url_policy": {"ports": [443]}}
    assert made["toolhost"]["limits"] == {"read_bytes": "1MiB", "write_bytes": "3MiB"}
    assert (list(made["toolhost"]["principals"]), made["toolhost"]["listen"]["port"]) == (
        ["one"],
        8080,
    )


@pytest.mark.requirement("toolspod:settings-file")
def test_a_mistake_in_the_file_is_reported_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "toolhost.yml").write_text(
        "tools:\n  exec: {enabled: perhaps}\n  spwan: {}\n", encoding="utf-8"
    )
    codes_of(tmp_path, pod("{file: toolhost.yml}"))
    found = check_pod(tmp_path / "claw-pod.yml", {}).diagnostics
    places = {
        (Path(each.span.file).name, each.span.line, each.span.column, each.code.name)
        for each in found
    }
    assert places == {("toolhost.yml", 2, 19, "bad-value"), ("toolhost.yml", 3, 3, "unknown-key")}
