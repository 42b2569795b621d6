"""The launcher: it forks a keeper for each call, and nothing else.

The reasons are in docs/decisions/0034-a-launcher-that-forks.md.

``main([LIMITS, FD])`` serves until the other end of the socket FD closes. It is a program of the
standard library alone, and of one thread, so that a fork costs little and copies nothing secret:
what a call runs, its keeper reads.

Rules. Every call has a keeper, which ends all processes of the call before it ends itself: when the
command ends, when the host closes the call's socket or dies, when the launcher dies, or when the
call takes too much memory. In namespaces the keeper's child is process 1 of the call, and the
kernel ends what is below it; without them the keeper is the subreaper of the call.

On a call's socket the host sends a length in eight digits and a JSON object {argv, environment} or
{probe}, and no more until it closes its side. Lines come back: ``status N`` as waitpid gives it,
``failed WHY``, ``memory``, ``breach WHAT``, ``held``. The end of the stream says that nothing of
the call is left.
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
    CommandLimits,
    confine,
    count_tasks,
    die_with_parent,
    drop_user,
    enter_namespaces,
    find_breaches,
    hide_memory,
    prefer_to_keeper,
    set_limits,
)
from claw_tools.execution.descendants import end_descendants, uses_more_than
from claw_tools.execution.filesystem import build_root
from claw_tools.execution.syscalls import call, prctl

_CHILD_SUBREAPER = 36  # Of prctl(2)
_LENGTH = 8
_WATCH_MS = 50
_REAP_SECONDS = 0.1
_LAST_DESCRIPTOR = 0xFFFFFFFF
_CLOSE_ON_EXEC = 4  # Of close_range(2)


class Descriptors(NamedTuple):
    """The descriptors of a call: the workspace's directory, its output, errors and socket."""

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
    limits = CommandLimits(**json.loads(arguments[0]))
    control = socket.socket(fileno=int(arguments[1]))
    prctl(_CHILD_SUBREAPER, 1)
    hide_memory()

    # A garbage collection in a fork would write to its pages, and so copy them.
    gc.disable()
    gc.freeze()

    os.umask(0o022)
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)

    keepers: set[int] = set()
    while True:
        timeout = _REAP_SECONDS if keepers else None
        readable, _, _ = select.select([control], [], [], timeout)
        if readable and not _take_call(control, limits, keepers):
            return  # The kernel then sends each keeper SIGTERM (``die_with_parent``)
        _reap(keepers)


def _take_call(control: socket.socket, limits: CommandLimits, keepers: set[int]) -> bool:
    """Fork the keeper of the next call; return False if the host has closed its end."""
    count = len(Descriptors._fields)
    message, descriptors, _, _ = socket.recv_fds(control, 1, count, socket.MSG_CMSG_CLOEXEC)
    if not message:
        return False

    if len(descriptors) == count:
        keepers.add(_fork_keeper(control, limits, Descriptors(*descriptors)))
    for descriptor in descriptors:
        os.close(descriptor)
    return True


def _fork_keeper(control: socket.socket, limits: CommandLimits, own: Descriptors) -> int:
    launcher = os.getpid()
    keeper = os.fork()
    if keeper == 0:
        control.close()
        _end_after(own, lambda: _keep(limits, own, launcher))
    return keeper


def _reap(keepers: set[int]) -> None:
    """Forget the keepers that have ended; if one was killed, end the processes that it left."""
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


def _keep(limits: CommandLimits, own: Descriptors, launcher: int) -> None:
    """Run a call, and end what is left of it."""
    os.setsid()
    length = int(_read(own.socket, _LENGTH) or b"0")
    request = json.loads(_read(own.socket, length) or b"{}")

    prctl(_CHILD_SUBREAPER, 1)
    drop_user(own.workspace)
    os.fchdir(own.workspace)
    if limits.form == "namespaces":
        enter_namespaces(network=limits.network)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    die_with_parent(signal.SIGTERM)

    # The launcher may have died before the kernel was asked to tell us.
    has_launcher = os.getppid() == launcher
    if not has_launcher or not request:
        return

    try:
        inner = _fork_inner(limits, own, request)
        os.close(own.output)
        os.close(own.errors)
        # In namespaces, process 1 tells the status (``_be_first``)
        if _has_ended(limits, own, inner) and limits.form == "landlock":
            own.say(f"status {os.waitpid(inner, 0)[1]}")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_descendants()


def _has_ended(limits: CommandLimits, own: Descriptors, inner: int) -> bool:
    """Wait for the end of a call.

    Return False if the host ends it, or if it takes too much memory.
    """
    ended = os.pidfd_open(inner)
    poll = select.poll()
    poll.register(own.socket, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while not (ready := poll.poll(_WATCH_MS)):
        if uses_more_than(limits.max_memory, inner):
            own.say("memory")
            return False
    return ended in dict(ready)


def _fork_inner(limits: CommandLimits, own: Descriptors, request: dict[str, Any]) -> int:
    """Fork the command; in namespaces, process 1, whose child the command is."""
    # The keeper never writes: its end of the pipe closes when it dies, and process 1 sees that.
    lifeline, keepers_end = os.pipe()
    inner = os.fork()
    if inner:
        os.close(lifeline)
        return inner

    os.close(keepers_end)
    own_lifeline = lifeline if limits.form == "namespaces" else None
    _end_after(own, lambda: _start_inner(limits, own, request, own_lifeline))


def _start_inner(
    limits: CommandLimits, own: Descriptors, request: dict[str, Any], lifeline: int | None
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    prefer_to_keeper()
    if lifeline is None:
        _become_command(limits, own, request, count_tasks())
    else:
        _be_first(limits, own, request, lifeline)


def _be_first(
    limits: CommandLimits, own: Descriptors, request: dict[str, Any], lifeline: int
) -> None:
    """Be process 1 of the call: make its root, run the command, tell its status.

    With this process all others end.
    """
    die_with_parent(signal.SIGKILL)
    keeper_has_died, _, _ = select.select([lifeline], [], [], 0)
    if keeper_has_died:  # before the kernel was asked to tell us
        return

    build_root(network=limits.network)
    command = os.fork()
    if command == 0:
        _end_after(own, lambda: _become_command(limits, own, request, 0))

    for descriptor in (own.output, own.errors, own.workspace):
        os.close(descriptor)
    while True:
        process, status = os.waitpid(-1, 0)
        if process == command:
            own.say(f"status {status}")
            return


def _become_command(
    limits: CommandLimits, own: Descriptors, request: dict[str, Any], tasks: int
) -> None:
    """Give up all rights but the command's, and become it; return only if it can't be started."""
    os.setsid()
    streams = (os.open("/dev/null", os.O_RDONLY), own.output, own.errors)
    for target, source in enumerate(streams):
        os.dup2(source, target)
    call("close_range", len(streams), _LAST_DESCRIPTOR, _CLOSE_ON_EXEC)

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
    paths = [name]
    if "/" not in name:
        paths = [f"{folder}/{name}" for folder in environment["PATH"].split(":")]

    reason = "no such program"
    for path in paths:
        try:
            os.execve(path, arguments, environment)  # noqa: S606 - that is what is asked for
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            reason = error.strerror or reason
    return reason


def _read(descriptor: int, length: int) -> bytes:
    """Read so many bytes; return none if the host has gone."""
    content = b""
    while len(content) < length:
        part = os.read(descriptor, length - len(content))
        if not part:
            return b""
        content += part
    return content
