"""Folders that an agent gets: what is read of them, and what is said not to be."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from claw_compile.compiler import check_pod
from claw_compile.loading import mounted_folder
from claw_compile.loading.mounted_folder import MAX_FILE_BYTES, read_folder
from tests.compile.leaking import MASTER, PROXY_KEY, leaks


def texts(folder: Path) -> dict[str, str]:
    return {file.path: file.text for file in read_folder(folder).files}


def write(file: Path, text: str = PROXY_KEY) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


WORDS = "token-visible-to-agent: holds the proxy's OPENAI_API_KEY"


@pytest.mark.requirement("compile:folders")
@pytest.mark.parametrize(
    "agent",
    [
        "volumes: ['./data:/data']",
        "volumes: ['./data/:/data:ro']",
        "volumes: [{type: bind, source: ./data, target: /data}]",
        "volumes: ['bound:/data']",
        "volumes_from: [clock]",
        "volumes_from: ['clock:ro']",
        "volumes_from: [heir]",
        "extends: clock",
        "extends: heir",
        "develop: {watch: [{action: sync, path: data, target: /data}]}",
        "secrets: [folder]",
        "configs: [folder]",
    ],
)
def test_a_key_in_a_folder_is_found_by_every_way_that_a_folder_is_given(
    tmp_path: Path, agent: str
) -> None:
    secret = tmp_path / "data" / "deeper" / ".env"
    write(secret, f"KEY={PROXY_KEY}\n")
    pod = (
        "volumes: {bound: {driver_opts: {type: none, o: bind, device: ./data}}}\n"
        "secrets: {folder: {file: ./data}}\nconfigs: {folder: {file: ./data}}\n"
    )
    assert codes_of(tmp_path, agent, pod) == ["token-visible-to-agent"]
    secret.unlink()
    assert codes_of(tmp_path, agent, pod) == []


def codes_of(directory: Path, agent: str, pod: str) -> list[str]:
    """Return the diagnostics of a pod with two services beside the agent, one of
    which extends the other.
    """
    leaks(directory, agent, pod)
    file = directory / "claw-pod.yml"
    services = "  clock: {volumes: ['./data:/d']}\n  heir: {extends: clock}\n"
    file.write_text(file.read_text(encoding="utf-8") + services, encoding="utf-8")
    return [each.code.name for each in check_pod(file, {"CLAW_MASTER_SECRET": MASTER}).diagnostics]


@pytest.mark.requirement("compile:folders")
def test_links_pipes_sockets_and_large_files_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "outside" / "key")
    data = tmp_path / "data"
    write(data / "kept")
    (data / "link").symlink_to(tmp_path / "outside" / "key")
    (data / "folder").symlink_to(tmp_path / "outside")
    (data / "loop").symlink_to(data)
    os.mkfifo(data / "pipe")
    (data / "large").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(data)  # the path of a socket is short
        listening.bind("socket")
        content = read_folder(data)
    assert [file.path for file in content.files] == ["kept"]
    assert content.unread == ("1 larger than 256 KiB",)


@pytest.mark.requirement("compile:folders")
def test_a_folder_that_is_itself_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    write(tmp_path / "real" / "key")
    (tmp_path / "data").symlink_to(tmp_path / "real")
    assert texts(tmp_path / "data") == {"key": PROXY_KEY}
    assert leaks(tmp_path, "volumes: ['./data:/data']") == [WORDS]


@pytest.mark.requirement("compile:folders")
def test_a_likely_name_is_read_however_many_files_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounted_folder, "MAX_FILES", 5)
    monkeypatch.setattr(mounted_folder, "MAX_ENTRIES", 60)
    for number in range(50):
        write(tmp_path / "data" / f"a{number:03}", "nothing")
    write(tmp_path / "data" / "z" / "prod.env")
    content = read_folder(tmp_path / "data")
    assert content.files[0].path == "z/prod.env"
    assert [file.path for file in content.files[1:]] == ["a000", "a001", "a002", "a003"]
    assert content.unread == ("46 files behind the first 5",)


@pytest.mark.requirement("compile:folders")
def test_a_hundred_thousand_files_cost_what_the_bound_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(300):
        (data / f"{number:04}").touch()
    write(data / ".env")
    write(data / "deep" / "x")
    monkeypatch.setattr(mounted_folder, "MAX_ENTRIES", 100)
    content = read_folder(data)
    assert [file.path for file in content.files] == [
        ".env"
    ]  # the rest of the first hundred is empty
    assert content.unread == ("everything behind the first 100 entries",)
    monkeypatch.setattr(mounted_folder, "MAX_ENTRIES_OF_ONE", 300)
    assert read_folder(data).unread == ("folders of more than 300 entries, or that can't be read",)


@pytest.mark.requirement("compile:folders")
@pytest.mark.parametrize("place", ["/proc/self", "/sys/kernel", "/dev"])
def test_the_kernels_own_folders_are_not_read(place: str) -> None:
    content = read_folder(Path(place))
    assert (content.files, len(content.unread)) == ((), 1)
