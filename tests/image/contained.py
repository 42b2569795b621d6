"""A container without an engine: a mount namespace whose root is read-only and holds nothing of
this machine but the files of the system and of Python, and a process in it with another user and
without any capability.

It gets everything that compose.generated.yml says of the proxy: its command, user, environment,
mounts, tmpfs.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SYSTEM = tuple(dict.fromkeys(("/usr", "/proc", "/dev", sys.base_prefix, sys.prefix)))
"""The system's directories, without ``/etc``: no user is known, and no name but
those that a test mounts.
"""
_LINKS = ("bin", "lib", "lib64", "sbin")
"""Links of a system whose ``/usr`` is merged; other systems have directories, which are mounted."""
SITE = "/site"


def refused() -> str | None:
    """Return why no such container can be made here, or None if it can."""
    for program in ("unshare", "setpriv", "mount", "chroot"):
        if shutil.which(program) is None:
            return f"{program} is not installed: apt-get install util-linux"
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "--make-rprivate", "/"], capture_output=True, check=False
    )
    why = tried.stderr.decode().strip()
    return f"the kernel refuses mount namespaces ({why}): run as root" if tried.returncode else None


@dataclass(frozen=True)
class Mount:
    """A directory or file of this machine, and its path in the container."""

    source: Path
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class Container:
    """A command, with its user, environment and mounts."""

    home: Path
    """An empty directory, in which its root is made."""
    mounts: list[Mount]
    environment: dict[str, str]
    command: list[str]
    workdir: str
    uid: int

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        """Start the process, which becomes the command."""
        root = self.home / "root"
        root.mkdir()
        script = "\n".join(["set -e", *self._root(root), f"exec {shlex.join(self._entered(root))}"])
        with log.open("ab") as out:
            return subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={},
            )

    def _root(self, root: Path) -> list[str]:
        system = [Mount(Path(path), path) for path in _SYSTEM]
        system += [
            Mount(Path("/", name), f"/{name}")
            for name in _LINKS
            if Path("/", name).is_dir() and not _is_link(name)
        ]
        links = [
            f"ln -s {Path('/', name).readlink()} {root}/{name}" for name in _LINKS if _is_link(name)
        ]
        mounts = [line for mount in [*system, *self.mounts] for line in _mounted(mount, root)]
        # Before the other mounts, some of which may be below /tmp
        tmp = [f"mkdir -p {root}/tmp", f"mount -t tmpfs -o mode=1777,size=64m tmp {root}/tmp"]
        return [
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "mount --make-rprivate /",
            f"mount -t tmpfs -o mode=755 root {root}",
            *links,
            *tmp,
            *mounts,
            f"mount -o remount,ro {root}",
        ]

    def _entered(self, root: Path) -> list[str]:
        rights = ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--clear-groups"]
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        inside = f"cd {self.workdir} && exec {shlex.join(self.command)}"
        who = [f"--reuid={self.uid}", f"--regid={self.uid}"]
        return [
            "chroot",
            str(root),
            "setpriv",
            *who,
            *rights,
            "env",
            "-i",
            *variables,
            "sh",
            "-c",
            inside,
        ]


def _is_link(name: str) -> bool:
    return Path("/", name).is_symlink()


def _mounted(mount: Mount, root: Path) -> list[str]:
    at = shlex.quote(f"{root}{mount.target}")
    made = f"mkdir -p {at}" if mount.source.is_dir() else f"mkdir -p $(dirname {at}) && touch {at}"
    lines = [made, f"mount --bind {shlex.quote(str(mount.source))} {at}"]
    return [*lines, f"mount -o remount,bind,ro {at}"] if mount.read_only else lines


def path() -> str:
    """Return the PATH of the container."""
    return f"{sys.prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def of_compose(proxy: dict[str, Any], directory: Path, volumes: Path) -> list[Mount]:
    """Return the mounts of a compiled service.

    Its named volumes are below ``volumes``, empty and writable as in the image.
    """
    mounts: list[Mount] = []
    for volume in proxy["volumes"]:
        source = (
            directory / volume["source"] if volume["type"] == "bind" else volumes / volume["source"]
        )
        if volume["type"] == "volume":
            source.mkdir(parents=True)
            source.chmod(0o1777)
        mounts.append(Mount(source, volume["target"], volume.get("read_only", False)))
    return mounts
