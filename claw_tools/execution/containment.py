"""The form that holds commands on this machine, found by trying it; and the launcher.

The launcher runs the commands. See docs/tools-host.md.

Rules. A form holds when every attempt to leave it, made by a process inside it, has failed. If one
can't be had, a line says why. If no form holds, there are no commands.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from claw_contract.toolhost_file import ExecSection
from claw_tools.execution.filesystem import WORKSPACE

type Form = Literal["namespaces", "landlock"]

FORMS: Final[tuple[Form, ...]] = ("namespaces", "landlock")
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); from claw_tools.execution.launcher import "
    "main; main(sys.argv[2:])"
)
_PROBE_SECONDS: Final = 20.0
_END_SECONDS: Final = 5.0
_NOBODY: Final = 65_534
_ANY_ABI: Final = 99


class Containment:
    """The form that holds, with its launcher; ``form`` is None where none does.

    ``reason``: one line.
    """

    def __init__(self, form: Form | None, reason: str, section: ExecSection, max_abi: int) -> None:
        """Hold commands in a form. The launcher starts with the first call."""
        self.form = form
        self.reason = reason
        self._section = section
        self._max_abi = max_abi
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def launcher(self) -> int | None:
        """The process id of the launcher, if it has been started."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the launcher, and with it every command."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._control = self._process = None

    def problem_of(self, root: Path) -> str | None:
        """Return why no commands can run in a workspace, in one line with the remedy.

        Return None if they can.
        """
        if self.form is None:
            return self.reason
        if os.geteuid() == 0 and root.stat().st_uid == 0:
            return (
                f"the workspace {root} is root's, and commands run as its owner: `chown -R "
                f"1000:1000 {root}`"
            )
        return None

    def environment(self, root: Path) -> dict[str, str]:
        """Return the whole environment of a command in a workspace."""
        has_own_root = self.form == "namespaces"
        return {
            **self._section.environment,
            "PATH": PATH,
            "HOME": WORKSPACE if has_own_root else str(root),
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp" if has_own_root else str(root),  # noqa: S108 - the call's own
            "TERM": "dumb",
        }

    def start_call(self, root: Path, output: int, errors: int) -> socket.socket:
        """Let the launcher fork a call's keeper, and return the call's socket. Raise ``OSError``.

        ``output`` and ``errors`` are the writing ends of pipes.
        """
        ours, theirs = socket.socketpair()
        workspace = None

        try:
            workspace = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._send([workspace, output, errors, theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            if workspace is not None:
                os.close(workspace)
        return ours

    def _send(self, descriptors: Sequence[int]) -> None:
        """Hand descriptors to the launcher; start it if it has not been started, or has died."""
        if self._control is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(self._control, [b"c"], descriptors)
                return
            self.close()

        self._start()
        assert self._control is not None
        socket.send_fds(self._control, [b"c"], descriptors)

    def _start(self) -> None:
        # The members of ``confinement.CommandLimits``; the others have the defaults there
        limits = {
            "form": self.form,
            "network": self._section.network,
            "runs_own": not self._section.allow,
            "max_abi": self._max_abi,
        }

        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        packages = Path(__file__).resolve().parents[2]
        command = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            _PROGRAM,
            str(packages),
            json.dumps(limits),
            str(theirs.fileno()),
        ]

        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                command,
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._control = ours


def find_containment(
    section: ExecSection, forms: Sequence[Form] = FORMS, max_abi: int = _ANY_ABI
) -> Containment:
    """Return the first form that holds here. ``max_abi``: the newest ABI of Landlock to use.

    It blocks for about a tenth of a second.
    """
    failures: list[str] = []
    for form in forms:
        tried = Containment(form, "", section, max_abi)
        problem = _try(tried)
        if problem is None:
            tried.reason = _reason(form, failures)
            return tried

        tried.close()
        failures.append(f"{form}: {problem}")
    reason = f"commands can't be contained here ({'; '.join(failures)}): see docs/tools-host.md"
    return Containment(None, reason, section, max_abi)


def _reason(form: Form, failures: Sequence[str]) -> str:
    if form == "namespaces":
        return "commands are held by namespaces of their own, Landlock and seccomp"
    why = f", because namespaces can't be had ({'; '.join(failures)})" if failures else ""
    return f"commands are held by Landlock and seccomp alone{why}"


def _try(tried: Containment) -> str | None:
    """Return why a form does not hold, or None; a process inside it tries to leave it."""
    home = Path(tempfile.mkdtemp(prefix="claw-probe-"))
    try:
        home.chmod(0o755)
        workspace = home / "workspace"
        workspace.mkdir()
        workspace.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(workspace, _NOBODY, _NOBODY)

        # The rights of files must not be what protects them: everybody may write these
        outside = home / "outside"
        outside.mkdir()
        outside.chmod(0o777)
        secret = outside / "secret"
        secret.write_bytes(b"secret")
        secret.chmod(0o666)
        return _judge(_probe(tried, workspace, outside))
    except OSError as error:
        return error.strerror or str(error)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _probe(tried: Containment, workspace: Path, outside: Path) -> list[str]:
    """Return what a process in the containment says of its attempts to leave it."""
    with (
        Path(os.devnull).open("wb") as null,
        tried.start_call(workspace, null.fileno(), null.fileno()) as own,
    ):
        own.settimeout(_PROBE_SECONDS)
        own.sendall(frame({"probe": str(outside)}))
        with own.makefile("r", encoding="utf-8", errors="replace") as lines:
            return lines.read().splitlines()


def _judge(lines: Sequence[str]) -> str | None:
    """Return why a form does not hold by the lines of a probe, or None."""
    breaches = [line.removeprefix("breach ") for line in lines if line.startswith("breach ")]
    if breaches:
        return f"a process inside can {', '.join(breaches)}"
    if "held" in lines:
        return None

    for line in lines:
        if line.startswith("failed "):
            return line.removeprefix("failed ")
    return "the launcher does not start"


def frame(request: dict[str, Any]) -> bytes:
    """Return what a call's keeper reads from its socket."""
    content = json.dumps(request).encode()
    return b"%08d%s" % (len(content), content)
