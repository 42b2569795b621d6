"""Network namespaces that a test makes, and that can't be left behind: each lives as long as a
process that holds it, and that ends with the pipe that it reads, however the test ends. They have
no names, so none can collide.

Each has its own mounts too, so it can have another hosts file and see other files.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.opened_paths import OpenedPaths
from tests.peers import listening
from tests.waiting import DEADLINE

PROGRAMS = ("unshare", "nsenter", "setpriv", "ip", "nft")
_HOLD = "ip link set lo up && echo held && read -r _"


class RefusedError(Exception):
    """A tool or permission that namespaces need is missing here."""


class Namespace:
    """A network namespace with its own mounts; ``network``: another one whose network it shares, as
    containers of a pod do.
    """

    def __init__(self, network: Namespace | None = None) -> None:
        if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
            raise RefusedError(f"no {' and no '.join(missing)} (scripts/get-peers installs them)")
        kinds = ["--mount"] if network else ["--mount", "--net"]
        command = [
            *(network.entering("--net") if network else ()),
            "unshare",
            *kinds,
            "--propagation",
            "private",
        ]
        self._holder = subprocess.Popen(
            [*command, "sh", "-c", _HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"held\n":
            said = self._holder.communicate()[1].decode()
            raise RefusedError(said.strip())
        self._within = ThreadPoolExecutor(1, initializer=self._enter)
        self._hold = Path(tempfile.mkdtemp(prefix="claw-test-"))
        self._opened = OpenedPaths(self._hold)

    @property
    def pid(self) -> int:
        return self._holder.pid

    def close(self) -> None:
        self._within.shutdown()
        self._holder.communicate(timeout=DEADLINE)
        # Its mounts were seen within only. Nothing is deleted that is no empty folder, if one ever
        # was not.
        for folder in (*self._hold.iterdir(), self._hold):
            folder.rmdir()

    def entering(self, *kinds: str) -> list[str]:
        """Return the words that run a command within the namespace."""
        return ["nsenter", "--target", str(self.pid), *(kinds or ("--net", "--mount")), "--"]

    def run(self, *command: str, script: str | None = None) -> str:
        """Run a command within the namespace, as root; return its output."""
        done = subprocess.run(
            [*self.entering(), *command], input=script, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def ip(self, *lines: str) -> None:
        self.run("ip", "-batch", "-", script="\n".join(lines))

    def inside[T](self, do: Callable[[], T]) -> T:
        """Call the function in a thread within the network: sockets that it makes
        stay there, whoever uses them.
        """
        return self._within.submit(do).result(DEADLINE)

    def listener(self, host: str, port: int) -> socket.socket:
        return self.inside(lambda: listening(host, port))

    def joined(self, other: Namespace, name: str, ours: int, theirs: int) -> None:
        """Connect both by a cable.

        The last letter of its name is the network's number; ``ours`` and ``theirs`` are hosts.
        """
        self.ip(f"link add {name} type veth peer name {name} netns {other.pid}")
        for end, host in ((self, ours), (other, theirs)):
            end.addressed(name, host)
            end.ip(f"link set {name} up")

    def addressed(self, name: str, host: int) -> None:
        self.ip(
            f"addr add {v4(name, host)}/24 dev {name}",
            f"addr add {v6(name, host)}/64 dev {name} nodad",
        )

    def shows(self, content: Path, at: str) -> None:
        """Mount a file or directory over another one within the namespace."""
        self.run("mount", "--bind", str(content), at)

    def opened_to_all(self, *paths: Path) -> None:
        """Make these paths reachable for other users within, even below a directory
        that is closed to them, such as /root.
        """
        if lines := self._opened.lines(*paths):
            self.run("sh", "-ec", "\n".join(lines))

    def _enter(self) -> None:
        with Path(f"/proc/{self.pid}/ns/net").open("rb") as network:
            os.setns(network.fileno(), os.CLONE_NEWNET)


def v4(name: str, host: int) -> str:
    return f"10.77.{name[-1]}.{host}"


def v6(name: str, host: int) -> str:
    return f"fd77:{name[-1]}::{host}"
