"""The speed at which audit reads: ``python bench/auditing.py [--turns N] [--rounds
N] [--profile]``.

History and log of one agent with four calls a turn, as the proxy writes them, read in a process of
its own: lines and megabytes for a second of its CPU, and its largest use of memory.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from claw_audit.audit import AuditQuery, audit
from claw_contract.chain import GENESIS, seal_entry

CALLS = 4
TEXT = (
    'What a runner sends and a model answers is mostly text, with \\"marks\\" and\\nlines in it. '
    * 40
)
READ = """
import resource, sys, time
from pathlib import Path
from claw_audit.audit import AuditQuery, audit
from claw_audit.verify import verify
what, history, log = sys.argv[1], (Path(sys.argv[2]),), sys.argv[3]
started = time.process_time()
if what == "verify":
    verify(history)
else:
    audit(AuditQuery(history, (log,) if what == "history and log" else ()))
print(time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def call(number: int) -> str:
    result = f'{{"ok":true,"status_code":200,"data":{{"price":{number},"note":"{TEXT[:400]}"}}}}'
    return (
        f'{{"name":"desk.tool_{number % 12}","arguments":{{"n":{number}}},"result":{result},"latency_ms":{number % 400},'
        '"service":"desk","status":"ok","status_code":200,"duplicate":false,"effect":"read","ran":true}'
    )


def line(number: int) -> bytes:
    """Return the history line of a turn, not sealed."""
    body = f'{{"model":"gpt","messages":[{{"role":"user","content":"{TEXT}"}}]}}'
    calls = ",".join(call(number + place) for place in range(CALLS))
    return (
        f'{{"version":1,"turn_id":"turn_{number:032x}","digest":null,"ts":"2026-01-01T00:00:00.000Z","claw_id":"analyst",'
        f'"path":"/v1/chat/completions","requested_model":"gpt","stream":false,"request_original":{body},"status":"ok",'
        f'"effective_provider":"openai","effective_model":"gpt","status_code":200,"latency_ms":{number % 900},"resumed":false,'
        f'"tools_offered":["desk__tool"],"request_effective":{body},"response":{{"format":"json","json":{body}}},'
        '"usage":{"prompt_tokens":900,"completion_tokens":80,"cached_tokens":0,"reported_cost_usd":0.002,"total_rounds":2},'
        f'"tool_trace":[{{"round":1,"wall_time_ms":5,"tool_calls":[{calls}]}}]}}'
    ).encode()


def log_lines(number: int) -> bytes:
    about = {
        "ts": "2026-01-01T00:00:00.000Z",
        "claw_id": "analyst",
        "turn_id": f"turn_{number:032x}",
        "model": "gpt",
    }
    events = [{"type": "request", "tools_count": 12}]
    events += [
        {"type": "tool_call", "name": f"desk.tool_{place}", "status": "ok", "round": 1}
        for place in range(CALLS)
    ]
    events += [
        {
            "type": "response",
            "status_code": 200,
            "latency_ms": 5,
            "total_rounds": 2,
            "tokens_in": 900,
        }
    ]
    return b"".join(json.dumps(about | one).encode() + b"\n" for one in events)


def write_files(home: Path, turns: int) -> tuple[Path, Path]:
    """Write history and log of so many turns; return their paths."""
    file, log, prev = home / "history" / "analyst" / "history.jsonl", home / "proxy.log", GENESIS
    file.parent.mkdir(parents=True)
    with file.open("wb") as history, log.open("wb") as log_file:
        for number in range(turns):
            data, prev = seal_entry(line(number), prev)
            history.write(data)
            log_file.write(log_lines(number))
    return file, log


def read(what: str, file: Path, log: Path, rounds: int) -> tuple[float, float]:
    """Return seconds of CPU and megabytes of memory."""
    command = [sys.executable, "-c", READ, what, str(file.parent.parent), str(log)]
    samples = []
    for _ in range(rounds):
        figures = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        samples.append((float(figures[0]), float(figures[1])))
    return median(seconds for seconds, _ in samples), max(memory for _, memory in samples)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the speed at which audit reads.")
    parser.add_argument("--turns", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print a profile instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="claw-bench-") as home:
        file, log = write_files(Path(home), options.turns)
        if options.profile:
            with cProfile.Profile() as profile:
                audit(AuditQuery((file.parent.parent,), (str(log),)))
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            return
        size, log_size = file.stat().st_size / 1e6, log.stat().st_size / 1e6
        print(
            f"{options.turns:,} turns with {CALLS} calls each: {size:.0f} MB of history, "
            f"{log_size:.0f} MB of log\n"
        )
        print(
            "| read | lines a second of CPU | MB a second of CPU | memory MB |\n|---|---|---|---|"
        )
        for what, lines, megabytes in (
            ("history", options.turns, size),
            ("history and log", options.turns * (CALLS + 3), size + log_size),
            ("verify", options.turns, size),
        ):
            seconds, memory = read(what, file, log, options.rounds)
            print(f"| {what} | {lines / seconds:,.0f} | {megabytes / seconds:.0f} | {memory:.0f} |")


if __name__ == "__main__":
    main()
