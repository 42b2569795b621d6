"""Landlock, in a process of its own: the rights of the rules, and no others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from claw_tools.execution.landlock import find_abi
from tests.not_tested import skip_for_kernel

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, os, socket, sys
from claw_tools.execution import landlock
home, abi, network = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "network"

def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return error.strerror
    return "done"

rules = [
    (f"{home}/own", landlock.WRITE),
    (f"{home}/shown", landlock.READ),
    (f"{home}/one", landlock.READ),
    (f"{home}/missing", landlock.WRITE),
]
landlock.restrict(rules, abi, network=network)
create = os.O_WRONLY | os.O_CREAT
print(json.dumps({
    "write own": outcome(lambda: os.open(f"{home}/own/new", create)),
    "read shown": outcome(lambda: os.open(f"{home}/shown/file", os.O_RDONLY)),
    "write shown": outcome(lambda: os.open(f"{home}/shown/new", create)),
    "read one": outcome(lambda: os.open(f"{home}/one", os.O_RDONLY)),
    "read beside": outcome(lambda: os.open(f"{home}/beside", os.O_RDONLY)),
    "link": outcome(lambda: os.link(f"{home}/shown/file", f"{home}/own/link")),
    "listen": outcome(lambda: socket.create_server(("127.0.0.1", 0))),
}))
"""
DENIED = "Permission denied"


def attempts(home: Path, abi: int, network: str = "") -> dict[str, str]:
    """Return what came of each attempt of a process that was restricted."""
    for folder in ("own", "shown"):
        (home / folder).mkdir(exist_ok=True)
    for file in ("shown/file", "one", "beside"):
        (home / file).write_text("text")
    command = [sys.executable, "-c", PROGRAM, str(home), str(abi), network]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def newest_abi() -> int:
    try:
        return find_abi()
    except OSError as error:
        skip_for_kernel("Landlock", str(error))


@pytest.mark.requirement("tools:exec:files")
def test_a_path_has_the_rights_of_its_rule_and_what_has_no_rule_none(tmp_path: Path) -> None:
    found = attempts(tmp_path, newest_abi())
    assert {name: found[name] for name in found if name not in {"link", "listen"}} == {
        "write own": "done",
        "read shown": "done",
        "write shown": DENIED,
        "read one": "done",
        "read beside": DENIED,
    }
    assert found["link"] != "done"


@pytest.mark.requirement("tools:exec:sockets", "tools:exec:network")
def test_tcp_is_refused_unless_there_is_a_network(tmp_path: Path) -> None:
    abi = newest_abi()
    if abi < 4:
        skip_for_kernel("Landlock of TCP", f"the ABI is {abi}")
    assert attempts(tmp_path, abi)["listen"].startswith(DENIED)
    assert attempts(tmp_path, abi, "network")["listen"] == "done"
    assert attempts(tmp_path, 3)["listen"] == "done"  # An older kernel does not know this right
