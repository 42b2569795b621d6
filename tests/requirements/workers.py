"""Several processes of one proxy: ``claw proxy --workers``."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "workers:option": Requirement(
        "decision 0035",
        "claw proxy --workers takes 1 to 64, or auto for the usable cores; with one it is mitmproxy itself.",
    ),
    "workers:share": Requirement(
        "decision 0035",
        "Workers share every listener, each serves turns, and an address in use is refused as ever.",
    ),
    "workers:refused": Requirement(
        "decision 0035",
        "What workers can't share is refused at the start: a state in memory, files of flows, mitmweb.",
    ),
    "workers:history": Requirement(
        "decision 0035",
        "Each worker has a history of its own, which audit and verify take together; the log names the worker.",
    ),
    "workers:one-page": Requirement(
        "docs/metrics.md",
        "/metrics adds all workers up, whichever is asked, and no count falls when one dies; /ready asks all.",
    ),
    "workers:replaced": Requirement(
        "decision 0035",
        "A worker that dies is replaced, and the log says so; one that dies again and again waits longer.",
    ),
    "workers:start-fails": Requirement(
        "decision 0035", "Workers that can't start end the proxy, with their reason and exit code."
    ),
    "workers:signals": Requirement(
        "decision 0035",
        "SIGTERM and SIGINT drain all workers, and end with the codes of one proxy; SIGHUP ends none.",
    ),
    "workers:hung": Requirement(
        "decision 0035",
        "A worker that hangs at the end is killed a few seconds after its drain, and the log says so.",
    ),
    "workers:silent": Requirement(
        "decision 0035",
        "A worker whose loop does not reply for 30 s is killed and replaced; none is because the whole proxy was stopped.",
    ),
    "workers:gone": Requirement(
        "decision 0035",
        "Nobody accepts connections for a dead supervisor, what has connected is answered, and a new proxy waits for its turn.",
    ),
    "workers:feeds": Requirement(
        "docs/spec/mediation.md section 8",
        "The last text of a feed that one worker has is shown by all when the source is gone.",
    ),
    "workers:no-orphans": Requirement(
        "decision 0035",
        "kill -9 of the supervisor drains and ends its workers; no process is left behind.",
    ),
    "workers:lines": Requirement(
        "decision 0035",
        "What workers write are whole lines, also long ones in a pipe whose reader is slow.",
    ),
    "workers:frames": Requirement(
        "decision 0035",
        "A message between a worker and the supervisor is whole, in whatever pieces the socket gives it.",
    ),
    "workers:sessions": Requirement(
        "decision 0035",
        "A request of an MCP session is led to the worker that has it; when that one died, it gets 404.",
    ),
    "workers:at-most-once": Requirement(
        "decision 0035",
        "Workers that are killed at any moment repeat no write, refuse no transcript, and are replaced.",
    ),
    "workers:compiled": Requirement(
        "docs/pod-file.md",
        "cllama: {workers: N} sets the workers of the proxy in Compose and Kubernetes.",
    ),
}
