#!/usr/bin/env python3
"""Decodes with 1 and 2 threads in turns while another process keeps one core busy, and prints a Markdown table.

  bench/busy_core.py [--rounds 7] MODEL...
"""
import argparse
import json
import os
import statistics
import subprocess
import sys


def decode(kvant, model, threads):
    command = [kvant, "bench", model, "-p", "0", "-n", "256", "--threads", str(threads), "--reps", "3", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)["rows"][0]["tokens_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--kvant", default="target/release/kvant")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    core = max(os.sched_getaffinity(0))
    spinner = subprocess.Popen(["sh", "-c", "while :; do :; done"], preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        print("| model | 1 thread, tok/s | 2 threads, tok/s | ratio |")
        print("|---|--:|--:|--:|")
        for model in options.models:
            rounds = [(decode(options.kvant, model, 1), decode(options.kvant, model, 2)) for _ in range(options.rounds)]
            one, two = (statistics.median(column) for column in zip(*rounds))
            ratio = statistics.median(b / a for a, b in rounds)
            print(f"| {os.path.basename(model)} | {one:.0f} | {two:.0f} | {ratio:.2f} |", flush=True)
    finally:
        spinner.kill()


if __name__ == "__main__":
    sys.exit(main())
