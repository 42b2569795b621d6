"""The bench works: every row of it can be measured. The figures themselves are not tested."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.not_tested import need, skip_for_kernel

ROOT = Path(__file__).parent.parent


@pytest.mark.requirement("bench:alive")
def test_every_row_of_the_bench_can_be_measured(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "bench" / "run.py"),
        "--smoke",
        "--json",
        str(tmp_path / "figures.json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    by_row: dict[str, set[str]] = {}
    for figure in found["figures"]:
        by_row.setdefault(figure["what"], set()).add(figure["subject"])
        assert 0 < figure["first"] <= figure["p50"] <= figure["p99"]
    assert {
        "pass-through, JSON",
        "pass-through, SSE",
        "turn of 1 round",
        "turn of 8 rounds",
    } <= by_row.keys()
    for what, subjects in by_row.items():
        bare = {"bare", "empty addon"} if what.startswith("pass-through") else set()
        assert subjects - {"ours, Responses", "ours, pinned"} == {"direct", "ours"} | bare
    kinds = (
        "20/s",
        "20/s, SSE",
        "20/s, cold",
        "60/s",
        "one every 2 s",
        "the first after the start",
    )
    assert {row["what"] for row in found["overheads"]} >= {f"arrivals, {kind}" for kind in kinds}
    assert all(
        megabytes > 0
        for memory in (found["by_turns"], found["by_agents"])
        for megabytes in memory.values()
    )
    assert (
        {row["by"] for row in found["stored"]}
        == {row["by"] for row in found["together"]}
        >= {"memory", "SQLite"}
    )
    assert all(0 < row["state_p50"] < row["turn_p50"] for row in found["stored"])
    assert "| target" in done.stdout


@pytest.mark.requirement("bench:honest")
def test_the_bench_stops_when_operations_do_not_ask_what_their_row_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    load, stage, wire = (importlib.import_module(name) for name in ("load", "stage", "wire"))
    with stage.generator() as generator, stage.site(tmp_path, {}) as at:

        def run_checked(claimed: int, *made: int) -> None:
            with stage.check_requests(at, 4 * len(made), claimed):
                for rounds in made:
                    generator.run(load.Load(1, 2, wire.direct(at.ports, "agent", rounds)))

        run_checked(1, 1)
        with pytest.raises(
            SystemExit,
            match="of 4 operations of 2 rounds 4 asked the model 2 times; all called the service 4",
        ):
            run_checked(2, 1)
        with pytest.raises(
            SystemExit, match="4 asked the model 1 times, 4 asked the model 3 times"
        ):
            run_checked(1, 0, 2)  # whose sums are right


@pytest.mark.requirement("bench:alive")
def test_a_bench_that_stops_prints_what_it_has_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    run, arrivals = importlib.import_module("run"), importlib.import_module("arrivals")
    found = tmp_path / "figures.json"
    monkeypatch.setattr(
        sys, "argv", ["run.py", "--smoke", "--only", "one every 2 s", "--json", str(found)]
    )
    rounds = arrivals.Arrivals.measure

    def stop_after_a_round(*arguments: Any, **options: Any) -> Iterator[Any]:
        yield next(rounds(*arguments, **options))
        raise SystemExit("the service was called too often")

    monkeypatch.setattr(arrivals.Arrivals, "measure", stop_after_a_round)
    with pytest.raises(SystemExit, match="too often"):
        run.main()
    assert "| arrivals, one every 2 s " in capsys.readouterr().out
    assert json.loads(found.read_text(encoding="utf-8"))["overheads"]


@pytest.mark.requirement("bench:alive")
def test_stacks_become_a_picture_and_a_table_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    flame = importlib.import_module("flame")
    loop = "thread (7): MainThread;<module> (mitmdump:1);Handle._run (asyncio/events.py:87)"
    turn = f"{loop};hook (mitmproxy/addonmanager.py:2);Turn.run (claw_mediate/turns/run.py:9)"
    lines = [
        f"{turn};loads (json/decoder.py:3) 6",
        f"{loop};read (mitmproxy/http.py:4) 3",
        "thread (8): w-1;wait (threading.py:1) 1",
    ]
    stacks = flame.read("\n".join(lines))
    assert list(flame.by_part(stacks)) == [
        ("claw_mediate/turns", "60.0 %"),
        ("mitmproxy", "30.0 %"),
        ("Python's loop and threads", "10.0 %"),
    ]
    titles = re.findall("<title>(.*?)</title>", flame.picture(stacks))
    assert "Turn.run (claw_mediate/turns/run.py), 60.0 %" in titles
    assert not [title for title in titles if "Handle._run" in title or "mitmdump" in title]


@pytest.mark.requirement("bench:alive")
def test_the_page_has_a_place_for_each_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    page = importlib.import_module("page")
    copy = tmp_path / "performance.md"
    copy.write_bytes((ROOT / "docs" / "performance.md").read_bytes())
    for name in (
        "machine",
        "arrivals",
        "kept",
        "turns",
        "agents",
        "stored",
        "together",
        "sizes",
        "targets",
        "parts",
    ):
        page.replace(copy, name, f"the table {name}")
        assert f"\n\nthe table {name}\n\n" in copy.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="lacks the marks <!-- other -->"):
        page.replace(copy, "other", "")


@pytest.mark.requirement("bench:alive")
def test_what_a_check_of_a_large_pod_costs_can_be_measured() -> None:
    command = [
        sys.executable,
        str(ROOT / "bench" / "compiling.py"),
        "--services",
        "3",
        "--agents",
        "2",
        "--rounds",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 services with 5 tools each, 2 agents" in done.stdout


@pytest.mark.requirement("bench:alive")
def test_how_fast_audit_reads_can_be_measured() -> None:
    command = [
        sys.executable,
        str(ROOT / "bench" / "auditing.py"),
        "--turns",
        "20",
        "--rounds",
        "1",
    ]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[4:]] == [
        "history",
        "history and log",
        "verify",
    ]


@pytest.mark.requirement("bench:alive")
def test_what_transparent_mode_costs_can_be_measured() -> None:
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        skip_for_kernel("network namespaces")
    need("nft")
    command = [
        sys.executable,
        str(ROOT / "bench" / "transparent.py"),
        "--operations",
        "2",
        "--rounds",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = {
        tuple(cell.strip() for cell in line.split("|")[1:4])
        for line in done.stdout.splitlines()[2:]
    }
    entrances = ("base URL, plain", "forward proxy", "transparent")
    kinds = [
        (what, kept)
        for what in ("pass-through", "turn of 1 round")
        for kept in ("kept", "one each")
    ]
    assert said == {(*kind, entrance) for kind in kinds for entrance in entrances}


@pytest.mark.requirement("bench:alive")
def test_every_row_of_live_streams_can_be_measured() -> None:
    command = [sys.executable, str(ROOT / "bench" / "live.py"), "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = {(cells[1], cells[2], cells[3]) for cells in _cells(done.stdout)}
    for subject in ("direct", "passed", "live", "buffered"):
        assert ("paced, 50 a second", "1", subject) in rows
        assert ("paced, 50 a second", "4", subject) in rows
    measured = {cells[1] for cells in _cells(done.stdout)}
    assert {
        "as fast as it goes, 1 KiB",
        "last byte of a hidden reply → its tool's request",
        "last byte of a reply with a call → the runner",
        "the runner leaves → the provider's connection closes",
        "memory of an open stream",
    } <= measured


def _cells(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.split("|")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]


@pytest.mark.requirement("bench:honest")
def test_the_bench_of_live_streams_stops_when_a_row_does_not_stream_as_its_name_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    live = importlib.import_module("live")
    row = live.Row("paced", 1, 1, 2, 20_000)
    found = live.Stream(0.0, sent=[1.0, 2.0], arrived=[1.5, 2.5])
    late = live.Stream(0.0, sent=[1.0, 2.0], arrived=[2.5, 2.5])

    def check(by: str, stream: Any, asked: int = 1) -> None:
        figures = {"requests": {"turn": asked}, "tool_delays": []}
        live.check_streams(row, by, [stream], figures)

    check("live", found)
    check("buffered", late)
    for by, stream in (("live", late), ("buffered", found)):
        with pytest.raises(live.WrongWorkError, match="did not stream as it should"):
            check(by, stream)
    with pytest.raises(live.WrongWorkError, match="1 of 2 events arrived"):
        check("live", live.Stream(0.0, sent=[1.0], arrived=[1.5]))
    with pytest.raises(live.WrongWorkError, match="the provider was asked"):
        check("live", found, asked=2)
