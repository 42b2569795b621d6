"""The launcher: it forks a keeper for each call, and nothing else
(docs/decisions/0034-a-launcher-that-forks.md).

``main([LIMITS, FD])`` serves until the other end of the socket FD closes. It is a program of the
standard library alone, and of one thread, so that a fork costs little and copies nothing secret:
what a call runs, its keeper reads.

Rules. Every call has a keeper, which ends all processes of the call before it ends itself: when the
command ends, when the host closes the call's socket or dies, when the launcher dies, or when the
call takes too much memory. In namespaces the keeper's child is process 1 of the call, and the
kernel ends what is below it; without them the keeper is the subreaper of the call.

What is said on a call's socket: the host sends its length in eight digits and a JSON object {argv,
environment} or {probe}, and no more until it closes its side. Lines come back: ``status N`` as of
waitpid, ``failed WHY``, ``memory``, ``breach WHAT``, ``held``. The end of the stream says that
nothing of the call is left.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from claw_tools.execution.confinement import (
    Limits,
    confine,
    count_tasks,
    die_with_parent,
    drop_user,
    enter_namespaces,
    hide_memory,
    prefer_to_keeper,
    set_limits,
)
from claw_tools.execution.descendants import end_descendants, uses_more_than
from claw_tools.execution.filesystem import build_root
from claw_tools.execution.probes import find_breaches
from claw_tools.execution.syscalls import call, prctl

_CHILD_SUBREAPER = 36
_LENGTH = 8
_WATCH_MS = 50
_CLOSE_ON_EXEC = 4


class Descriptors(NamedTuple):
    """The descriptors of a call: the workspace's directory, its output and errors,
    and its socket.
    """

    workspace: int
    output: int
    errors: int
    socket: int

    def say(self, line: str) -> None:
        """Tell the host, which may be gone."""
        with contextlib.suppress(OSError):
            os.write(self.socket, f"{line}\n".encode(errors="replace"))


def main(arguments: list[str]) -> None:
    """Serve calls until the host closes its end."""
    limits = Limits(**json.loads(arguments[0]))
    control = socket.socket(fileno=int(arguments[1]))
    prctl(_CHILD_SUBREAPER, 1)
    hide_memory()
    gc.disable()
    gc.freeze()  # A collection in a fork would copy its pages
    os.umask(0o022)
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    keepers: set[int] = set()
    while True:
        if select.select([control], [], [], 0.1 if keepers else None)[0]:
            message, descriptors, _, _ = socket.recv_fds(
                control, 1, len(Descriptors._fields), socket.MSG_CMSG_CLOEXEC
            )
            if not message:
                return  # Keepers are told by the kernel
            if len(descriptors) == len(Descriptors._fields):
                keepers.add(_fork_keeper(control, limits, Descriptors(*descriptors)))
            for each in descriptors:
                os.close(each)
        _reap(keepers)


def _fork_keeper(control: socket.socket, limits: Limits, own: Descriptors) -> int:
    launcher = os.getpid()
    keeper = os.fork()
    if keeper == 0:
        control.close()
        _end_after(own, lambda: _keep(limits, own, launcher))
    return keeper


def _reap(keepers: set[int]) -> None:
    """Forget the keepers that have ended; end what one left that was killed."""
    while keepers:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process == 0:
            return
        keepers.discard(process)
        if os.WIFSIGNALED(status):
            end_descendants(but=frozenset(keepers))


def _end_after(own: Descriptors, work: Callable[[], None]) -> NoReturn:
    """Do the work of a forked process, and end it, whatever happens; tell the host of a failure."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - nothing of the launcher may run on in this process
        own.say(f"failed {getattr(error, 'strerror', None) or type(error).__name__}")
    finally:
        os._exit(0)


def _keep(limits: Limits, own: Descriptors, launcher: int) -> None:
    """Run a call, and end what is left of it."""
    os.setsid()
    request = json.loads(_read(own.socket, int(_read(own.socket, _LENGTH) or b"0")) or b"{}")
    prctl(_CHILD_SUBREAPER, 1)
    drop_user(own.workspace)
    os.fchdir(own.workspace)
    if limits.form == "namespaces":
        enter_namespaces(network=limits.network)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    die_with_parent(signal.SIGTERM)
    if os.getppid() != launcher or not request:
        return
    try:
        inner = _fork_inner(limits, own, request)
        os.close(own.output)
        os.close(own.errors)
        if _has_ended(limits, own, inner) and limits.form == "landlock":
            own.say(f"status {os.waitpid(inner, 0)[1]}")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_descendants()


def _has_ended(limits: Limits, own: Descriptors, inner: int) -> bool:
    """Wait for the end of a call; return False where the host ends it, or where it
    takes too much memory.
    """
    ended, waiting = os.pidfd_open(inner), select.poll()
    waiting.register(own.socket, select.POLLIN)
    waiting.register(ended, select.POLLIN)
    while not (ready := waiting.poll(_WATCH_MS)):
        if uses_more_than(limits.max_memory, inner):
            own.say("memory")
            return False
    return ended in dict(ready)


def _fork_inner(limits: Limits, own: Descriptors, request: dict[str, Any]) -> int:
    """Fork the command; in namespaces, process 1, whose child the command is."""
    kept, lifeline = os.pipe()
    inner = os.fork()
    if inner:
        os.close(kept)
        return inner  # The lifeline is open as long as the keeper lives
    os.close(lifeline)
    _end_after(
        own,
        lambda: _start_inner(limits, own, request, kept if limits.form == "namespaces" else None),
    )


def _start_inner(
    limits: Limits, own: Descriptors, request: dict[str, Any], lifeline: int | None
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    prefer_to_keeper()
    if lifeline is None:
        _become_command(limits, own, request, count_tasks())
    else:
        _be_first(limits, own, request, lifeline)


def _be_first(limits: Limits, own: Descriptors, request: dict[str, Any], lifeline: int) -> None:
    """Be process 1 of the call: make its root, run the command, tell its status.

    With this process all others end.
    """
    die_with_parent(signal.SIGKILL)
    if select.select([lifeline], [], [], 0)[0]:
        return  # The keeper had died before
    build_root(network=limits.network)
    command = os.fork()
    if command == 0:
        _end_after(own, lambda: _become_command(limits, own, request, 0))
    for each in (own.output, own.errors, own.workspace):
        os.close(each)
    while True:
        process, status = os.waitpid(-1, 0)
        if process == command:
            own.say(f"status {status}")
            return


def _become_command(limits: Limits, own: Descriptors, request: dict[str, Any], tasks: int) -> None:
    """Give up all rights but the command's, and become it; return only where it
    can't be started.
    """
    os.setsid()
    for target, source in enumerate((os.open("/dev/null", os.O_RDONLY), own.output, own.errors)):
        os.dup2(source, target)
    call("close_range", 3, 0xFFFFFFFF, _CLOSE_ON_EXEC)
    set_limits(limits, tasks)
    confine(limits)
    if "probe" in request:
        for breach in find_breaches(request["probe"], network=limits.network):
            own.say(f"breach {breach}")
        own.say("held")
        return
    own.say(f"failed {_execute(request['argv'], request['environment'])}")


def _execute(arguments: list[str], environment: dict[str, str]) -> str:
    """Become a program of the PATH; return why it can't be."""
    name = arguments[0]
    paths = (
        [name] if "/" in name else [f"{folder}/{name}" for folder in environment["PATH"].split(":")]
    )
    why = "no such program"
    for path in paths:
        try:
            os.execve(path, arguments, environment)  # noqa: S606 - that is what is asked for
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            why = error.strerror or why
    return why


def _read(descriptor: int, length: int) -> bytes:
    """Read so many bytes; none where the host has gone."""
    found = b""
    while len(found) < length:
        part = os.read(descriptor, length - len(found))
        if not part:
            return b""
        found += part
    return found
