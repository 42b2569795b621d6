"""``python -m claw_compile [POD] [-o DIR] [--target T]``: the compile verb without the rest of the command line."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from claw_compile.compiler import Target, Written, compile_pod
from claw_compile.diagnostics.report import as_text, count, plain_streams
from claw_compile.summary import summary


def main() -> int:
    """Exit 0, or 1 with errors; argparse exits 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m claw_compile", description="Compile a pod.")
    parser.add_argument("pod", nargs="?", type=Path, default=Path("claw-pod.yml"), help="the pod file")
    parser.add_argument("-o", "--output", type=Path, help="where to write (default: .claw-runtime beside the pod)")
    parser.add_argument("--target", choices=("compose", "kubernetes"), default="compose", help="what is to run it")
    options = parser.parse_args()
    plain_streams()
    return run(options.pod, options.output, options.target)


def run(pod: Path, output: Path | None, target: Target = "compose") -> int:
    """Compile and print; the exit code."""
    written = compiled(pod, output, target)
    if written is None:
        return 1
    sys.stdout.write(summary(written))
    sys.stdout.write(f"wrote {written.directory} and {written.deployed}\n")
    return 0


def compiled(pod: Path, output: Path | None = None, target: Target = "compose") -> Written | None:
    """Compile, and tell on standard error what was found; None with errors."""
    result = compile_pod(pod, os.environ, output, target)
    sys.stderr.write(as_text(result.diagnostics))
    if totals := count(result.diagnostics):
        sys.stderr.write(f"{totals}\n")
    if result.value is not None and result.value.new_master is not None:
        sys.stderr.write(f"made {result.value.new_master}: the pod's master secret; keep it, and keep it private\n")
    return result.value


if __name__ == "__main__":
    sys.exit(main())
