"""The process between the wrapper and its server: no process of the server outlives either of them.

``python -I -S reaper.py FD COMMAND [ARGS…]`` runs the command and exits as it does. It is a program
of the standard library alone, so that it is small and starts quickly.

Rules. Every descendant of the server becomes a child of the reaper when its parent ends
(``PR_SET_CHILD_SUBREAPER``), in whatever session or process group it is, and is waited for. When
the pipe FD closes, which it does with the wrapper even on ``kill -9``, or when the reaper is told
to stop, all of them get SIGTERM and, two seconds later, SIGKILL. When the server ends by itself,
what it left behind is killed.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections import defaultdict

_GRACE_SECONDS = 2.0
_PR_SET_CHILD_SUBREAPER = 36
CANNOT_START = 127


def descendants() -> list[int]:
    """Return the process ids of all descendants of this process, as /proc has them."""
    children: dict[int, list[int]] = defaultdict(list)
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - pathlib doubles the time of the start
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - the same
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue
        children[parent].append(int(name))

    found = []
    waiting = [os.getpid()]
    while waiting:
        below = children[waiting.pop()]
        found += below
        waiting += below
    return found


def send_signal(number: signal.Signals) -> None:
    """Send a signal to every descendant; without /proc, to the process group."""
    if sys.platform != "linux":
        os.killpg(0, number)
        return
    for pid in descendants():
        try:
            os.kill(pid, number)
        except OSError:
            continue  # The process has ended, or another user owns it


def end_descendants(ending: threading.Event, exited: threading.Event) -> None:
    """Wait until there is a reason to end, then end every descendant."""
    ending.wait()
    if not exited.is_set():
        send_signal(signal.SIGTERM)
        exited.wait(_GRACE_SECONDS)

    # Again and again, because a process may start another one between our look at /proc and the
    # signal. When the last has gone, ``main`` returns, and this thread ends with the process.
    while True:
        send_signal(signal.SIGKILL)
        time.sleep(0.02)


def wait_for_wrapper(lifeline: int, ending: threading.Event) -> None:
    """Wait until the wrapper closes its end of the pipe, or has died."""
    os.read(lifeline, 1)
    ending.set()


def reap(server: int, ending: threading.Event, exited: threading.Event) -> int:
    """Wait for every descendant; return the exit code of the server."""
    code = 0
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return code
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
            exited.set()
            ending.set()


def main(lifeline: int, command: list[str]) -> int:
    """Run the command and return its exit code.

    It is 128 plus the signal's number for a signal, and 127 for a command that can't be started.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.set_inheritable(lifeline, False)

    ending = threading.Event()
    exited = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: ending.set())

    try:
        # Python ignores these two signals, and a child would inherit that.
        defaults = [signal.SIGPIPE, signal.SIGXFSZ]
        server = os.posix_spawnp(command[0], command, os.environ, setsigdef=defaults)
    except OSError as error:
        sys.stderr.write(f"{command[0]} can't be started: {error.strerror}\n")
        return CANNOT_START

    # Both streams are the server's alone, so that the wrapper sees their end when the server ends.
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)

    threading.Thread(target=wait_for_wrapper, args=(lifeline, ending), daemon=True).start()
    threading.Thread(target=end_descendants, args=(ending, exited), daemon=True).start()
    code = reap(server, ending, exited)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    result = main(int(sys.argv[1]), sys.argv[2:])
    sys.stderr.flush()
    os._exit(result)  # Without waiting for the threads
