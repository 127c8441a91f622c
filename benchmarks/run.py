"""All measurements in one run, beside Ray Tune, Syne Tune and optuna-dashboard: `make bench`; README.md says how.

Every number is the median of --repeats fresh processes. Systems take turns, so that a slow minute of the machine hits
all of them. Results also go to benchmarks/results/<time>.json.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from measuring import median

HERE = Path(__file__).resolve().parent
SYSTEMS = {"ours": "tuner", "ray": "ray", "syne": "syne_tune", "dashboard": "optuna_dashboard", "submitit": "submitit"}
CALLED = {"ray": "Ray Tune", "syne": "Syne Tune", "dashboard": "optuna-dashboard", "submitit": "submitit"}


class Line(NamedTuple):
    """One line of the table."""

    bench: str
    measure: str
    what: str
    unit: str
    goal: float | None
    less_is_better: bool = True


LINES = [
    Line("startup", "first_result_s", "python script.py to first result", "s", 0.6),
    Line("startup", "import_s", "import", "s", 0.1),
    Line("trial_rate", "trials_per_s", "one-report trials, each a fresh process", "/s", 100, False),
    Line("trial_rate", "of_bare", "  the same, of a bare fork loop", "x", 0.5, False),
    Line("reuse_rate", "reused_s", "20 trials on two slots, setup of 1 s, reuse_actors=True", "s", 3.0),
    Line("reuse_rate", "reused_setups", "  how often setup was called", "times", 2),
    Line("reuse_rate", "empty_reused_trials_per_s", "  trials whose setup does nothing", "/s", None, False),
    Line("torch_start", "next_start_s", "next trial of a torch trainable, to its first line", "s", 0.05),
    Line("group_start", "first_step_s", "python script.py to the first step in two processes", "s", None),
    Line("group_start", "of_torchrun", "  of the time of plain torchrun", "x", None),
    Line("group_steps", "step_of_torchrun", "step in two processes, of one under plain torchrun", "x", 1.01),
    Line("group_steps", "step_cpu_of_torchrun", "  its CPU, of that", "x", 1.01),
    Line("group_steps", "in_report", "  share of it in report, one each 50 steps", "x", 0.01),
    Line("group_steps", "step_ms", "  a step", "ms", None),
    Line("result_rate", "results_per_s", "results from 2 trials, JSON and CSV", "/s", 10_000, False),
    Line("report_blocking", "move_100MB", "blocked in report / torch.save, move=True, 100 MB", "x", 0.1),
    Line("report_blocking", "move_1MB", "  the same, 1 MB", "x", 0.5),
    Line("report_blocking", "checkpoint_dir_100MB", "  checkpoint_dir, 100 MB", "x", 0.1),
    Line("report_blocking", "checkpoint_dir_1MB", "  checkpoint_dir, 1 MB", "x", 0.5),
    Line("report_blocking", "lent_100MB", "  lent (TemporaryDirectory), 100 MB", "x", 0.8),
    Line("report_blocking", "lent_1MB", "  lent (TemporaryDirectory), 1 MB", "x", 1.0),
    Line("checkpoint_cpu", "cpu_s", "CPU of driver and trial per 100 MB beyond torch.save", "s", 0.15),
    Line(
        "save_cadence",
        "of_best",
        'saving and lost work with "auto", of the best fixed frequency\'s: worst case',
        "x",
        1.1,
    ),
    Line("save_cadence", "of_best_median", "  median of 16 cases", "x", 1.1),
    Line("save_cadence", "killed_of_best", "  a real run, killed every 200 steps", "x", 1.1),
    Line("sleeping_trials", "driver_share", "200 trials that sleep: CPU of the driver, of one core", "x", 0.01),
    Line("sleeping_trials", "memory_mb", "  memory of all processes", "MB", 1_500),
    Line("ask_tell", "ask_of_journal", "a session: ask, of Optuna's on its journal storage", "x", 1.0),
    Line("ask_tell", "report_of_journal", "  report", "x", 1.0),
    Line("ask_tell", "finish_of_journal", "  finish, of tell", "x", 1.0),
    Line("ask_tell", "ask_of_bare", "  ask, of Optuna's in memory", "x", 3.0),
    Line("ask_tell", "report_of_bare", "  report", "x", 3.0),
    Line("ask_tell", "finish_of_bare", "  finish, of tell", "x", 3.0),
    Line("ask_tell", "ask_us", "  ask", "us", None),
    Line("ask_tell", "report_us", "  report", "us", None),
    Line("driver_cost", "calls_growth", "driver cost per result, trial 10,000 / trial 100: calls", "x", 1.1),
    Line("driver_cost", "growth", "  CPU time", "x", 1.1),
    Line("driver_cost", "spread_at_100", "  CPU time of like windows at trial 100, largest / smallest", "x", None),
    Line("driver_cost", "us_per_result_at_10000", "  CPU time at trial 10,000", "us", None),
    Line("resume_speed", "resume_s", "resume of 10,000 finished trials", "s", 2.0),
    Line("driver_cost", "bytes_per_finished_trial", "driver memory per finished trial", "B", 4_000),
    Line("asha_simulated", "cpu_s", "ASHA, 100,000 simulated trials x 10 results: CPU", "s", 90),
    Line("asha_simulated", "quiet_s", "  the same at the pace of its quickest tenth", "s", 90),
    Line("asha_simulated", "calls_growth", "  cost per result, at the end / at the start: calls", "x", 1.2),
    Line("asha_simulated", "growth", "  CPU time", "x", 1.2),
    Line("asha_simulated", "calls_per_result", "  calls per result at the end", "", None),
    Line("asha_simulated", "bytes_per_finished_trial", "  memory per finished trial", "B", 4_000),
    Line("asha_simulated", "stopped_us_per_trial", "  random results, most trials stopped: CPU per trial", "us", None),
    Line("pbt_exploit", "of_200_s", "PBT, 16 members, 10 MB checkpoints: 200 perturbations", "s", None),
    Line("pbt_exploit", "copied_per_exploit", "  copied per exploit", "B", 0),
    Line("pause_resume", "pause_resume_s", "HyperBand: one trial pauses, another goes on", "s", 0.05),
    Line("pause_resume", "torch_pause_resume_s", "  the same, torch imported", "s", 0.05),
    Line("tpe_waiting", "waiting", "TPE at trial 1,000, trials of 1 s: share of time waited", "x", 0.05),
    Line("tpe_waiting", "ahead_waiting", "  with ask_ahead", "x", 0.05),
    Line("tpe_waiting", "random_idle", "  idle with random search: starts and ends", "x", None),
    Line("tpe_waiting", "suggest_s", "  CPU of one suggestion", "s", None),
    Line("asha_digits", "to_accuracy_s", "ASHA on the digits, 16 trials, two cores: to 0.97", "s", None),
    Line("asha_digits", "whole_s", "  to the end", "s", None),
    Line("asha_digits", "best", "  best accuracy", "x", None, False),
    Line("sharded", "stall_of_memcpy", "async_save of 200 MB: stall, of one copy in memory", "x", 1.3),
    Line("sharded", "torch_save_of_memcpy", "  torch.save beside it", "x", None),
    Line("sharded", "load_of_read", "4 ranks' checkpoint on 2 ranks, of reading it: 200 MB", "x", 1.5),
    Line("sharded", "load_of_read_1600MB", "  1.6 GB", "x", 1.5),
    Line("cluster", "first_result_s", "two hosts: tune.run to its first result", "s", None),
    Line("cluster", "trials_per_s", "  one-report trials", "/s", None, False),
    Line("cluster", "results_per_s", "  results from 4 trials, JSON and CSV", "/s", None, False),
    Line("cluster", "move_of_rsync", "  a checkpoint of 100 MB to the driver, of plain rsync's time", "x", 1.3),
    Line("cluster", "after_loss_s", "  a host dies: its trial's last result to its next elsewhere", "s", None),
    Line("slurm_rate", "first_trial_s", "Slurm: first line of the first job's script to the first trial", "s", 1.0),
    Line("slurm_rate", "trials_per_s", "  one-report trials, 4 jobs that are up", "/s", None, False),
    Line("orders", "effect_s", "an order in place, to its effect", "s", 1.2),
    Line("orders", "calls_per_result", "  calls into its code per result, of a run without any", "", 0),
    Line("orders", "steps", "  a trunk of 30 steps and 8 forks of 5: steps", "", 70),
    Line("orders", "stored_of_distinct", "  bytes of checkpoints on the disk, of distinct ones", "x", 1.1),
    Line("orders", "replica_of_distinct", "  in a replica", "x", 1.1),
    Line("nodes_simulated", "of_ten_nodes", "1,000 simulated nodes, 5 % lost: CPU per result, of 10 nodes'", "x", 1.2),
    Line("nodes_simulated", "us_per_result", "  CPU per result", "us", None),
    Line("page_server", "read_cpu_s", "tuner ui with 100,000 trials: CPU of the first reading", "s", 15.0),
    Line("page_server", "held_mb", "  memory of the server then", "MB", 200.0),
    Line("page_server", "trials_s", "  the data of its table", "s", None),
    Line("page_picture", "trials_1000_s", "from the request to the table, 1,000 trials", "s", None),
    Line("page_picture", "trials_10000_s", "  10,000 trials", "s", None),
    Line("page_picture", "trials_100000_s", "  100,000 trials", "s", 1.5),
    Line("page_picture", "overview_1000_s", "  to the plot of all results, 1,000 trials", "s", None),
    Line("page_picture", "overview_10000_s", "  10,000 trials", "s", None),
    Line("page_picture", "overview_100000_s", "  100,000 trials", "s", 1.5),
    Line("page_picture", "filter_1000_ms", "a filter, 1,000 trials", "ms", 150),
    Line("page_picture", "filter_10000_ms", "  10,000 trials", "ms", 150),
    Line("page_picture", "filter_100000_ms", "  100,000 trials", "ms", 150),
    Line("page_picture", "fetched_kb", "bytes that the page is, as they are sent", "kB", 50),
    Line("page_picture", "heap_1000_mb", "memory of the page with 1,000 trials: JavaScript", "MB", None),
    Line("page_picture", "process_1000_mb", "  its process", "MB", None),
    Line("page_picture", "heap_100000_mb", "  with 100,000 trials: JavaScript", "MB", 300),
    Line("page_picture", "process_100000_mb", "  its process", "MB", 300),
    Line("page_picture", "server_1000_mb", "  the server, 1,000 trials", "MB", None),
    Line("page_picture", "server_100000_mb", "  the server, 100,000 trials", "MB", 200),
    Line("page_picture", "frame_100000_ms", "scrolling through 100,000 rows: a frame", "ms", None),
    Line("page_picture", "worst_frame_100000_ms", "  the worst of 120", "ms", None),
    Line("page_live", "to_point_s", "a result in a trial, to its point on the page", "s", 0.3),
    Line("page_live", "calls_of_none", "ten pages open: the driver's calls per result, of without", "x", 1.01),
    Line("page_live", "cpu_of_none", "  its CPU per result, of without", "x", None),
    Line("s3_push", "large_of_aws", "1 GiB in 4 files to S3, of the time of `aws s3 sync`", "x", 1.0),
    Line("s3_push", "large_of_s5cmd", "  the same, of s5cmd's", "x", 1.0),
    Line("s3_push", "large_cpu_of_aws", "  its CPU, of that of `aws s3 sync`", "x", 1.0),
    Line("s3_push", "large_ours_cpu_s_per_gib", "  CPU per GiB", "s", None),
    Line("s3_push", "of_bare", "  of the rate of a bare sender", "x", None, False),
    Line("s3_push", "small_of_aws", "2,000 files of 50 kB to S3, of the time of `aws s3 sync`", "x", 1.0),
    Line("s3_push", "small_of_s5cmd", "  the same, of s5cmd's", "x", 1.0),
    Line("s3_push", "small_cpu_of_aws", "  its CPU, of that of `aws s3 sync`", "x", 1.0),
    Line("replica_bytes", "sent_of_whole", "bytes sent for 20 checkpoints that are 90 % the same", "x", 0.15),
    Line("replica_cost", "steps_of_none", "steps with a checkpoint per epoch to S3, of without any", "x", 0.97, False),
    Line("replica_cost", "steps_cpu_of_none", "  the trial's CPU per step, of without any", "x", None),
    Line("replica_cost", "steps_of_saving", "  steps, of with checkpoints and no replica", "x", None, False),
    Line("replica_cost", "steps_cpu_of_saving", "  the trial's CPU per step, of that", "x", None),
    Line("replica_cost", "blocked_of_none", "blocked in report(checkpoint=) with a replica, of without", "x", 1.0),
    Line("replica_cost", "results_of_none", "results with a replica, of without", "x", None, False),
    Line("replica_cost", "results_cpu_of_none", "  the driver's CPU for one, of without", "x", None),
]
PEERS = {
    "startup": ("ray", "syne"),
    "trial_rate": ("ray", "syne"),
    "reuse_rate": ("ray",),
    "torch_start": ("ray",),
    "group_start": ("ray",),
    "result_rate": ("ray", "syne"),
    "report_blocking": ("ray",),
    "replica_cost": ("ray",),
    "pbt_exploit": ("ray",),
    "tpe_waiting": ("ray",),
    "asha_digits": ("ray", "syne"),
    "cluster": ("ray",),
    "slurm_rate": ("submitit",),
    "page_picture": ("dashboard",),
}


def measure(bench: str, system: str) -> dict[str, float]:
    """One run of one script for one system; empty, with a line on stderr, where it fails."""
    done = subprocess.run(
        [sys.executable, str(HERE / f"{bench}.py"), "--system", system], capture_output=True, text=True, timeout=1200
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return {key: value for key, value in json.loads(line[7:]).items() if key != "system"}
    print(f"{bench} of {system} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
    return {}


def number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{shown} {unit}".strip()


def ratio(line: Line, ours: float | None, theirs: float | None) -> str:
    """How many times better ours is."""
    if not ours or not theirs:
        return "-"
    return f"{number(theirs / ours if line.less_is_better else ours / theirs)} x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="only these scripts (startup, trial_rate, ...)")
    parser.add_argument("--repeats", type=int, default=3, help="fresh processes per number (default 3)")
    parser.add_argument("--no-peers", action="store_true", help="only ours")
    chosen = parser.parse_args()
    there = [name for name, module in SYSTEMS.items() if importlib.util.find_spec(module)]
    benches = [
        bench for bench in dict.fromkeys(line.bench for line in LINES) if not chosen.only or bench in chosen.only
    ]
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for bench in benches:
        systems = ["ours", *(() if chosen.no_peers else (name for name in PEERS.get(bench, ()) if name in there))]
        for turn in range(chosen.repeats):
            for system in systems:
                print(f"{bench}: {system} ({turn + 1} of {chosen.repeats})", file=sys.stderr)
                for key, value in measure(bench, system).items():
                    found.setdefault(bench, {}).setdefault(system, {}).setdefault(key, []).append(value)
    show(found, benches)
    keep(found)


def show(found: dict[str, dict[str, dict[str, list[float]]]], benches: list[str]) -> None:
    """Print the table."""

    def at(line: Line, system: str) -> float | None:
        numbers = found.get(line.bench, {}).get(system, {}).get(line.measure)
        return median(numbers) if numbers else None

    peers = [name for name in CALLED if any(name in found.get(bench, {}) for bench in benches)]
    rows = [("what", "ours", "to reach", *(CALLED[name] for name in peers), *(f"vs {CALLED[name]}" for name in peers))]
    for line in LINES:
        if line.bench not in benches:
            continue
        ours = at(line, "ours")
        met = ""
        if ours is not None and line.goal is not None:
            met = " ok" if (ours <= line.goal) == line.less_is_better or ours == line.goal else " MISSED"
        goal = "-" if line.goal is None else f"{number(line.goal, line.unit)}{met}"
        theirs = [at(line, name) for name in peers]
        beside = (number(each, line.unit) for each in theirs)
        rows.append((line.what, number(ours, line.unit), goal, *beside, *(ratio(line, ours, each) for each in theirs)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"\n{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}; medians. How each was")
    print("measured stands at the top of its script in benchmarks/; a ratio above 1 x means that ours is better.")


def keep(found: dict[str, dict[str, dict[str, list[float]]]]) -> None:
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    now = datetime.datetime.now()
    (results / f"{now:%Y-%m-%d_%H-%M-%S}.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
