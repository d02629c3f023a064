#!/usr/bin/env python3
"""Measures the time from exec to the first token of a 10-token prompt, and peak memory, beside llama.cpp.

  bench/first_token.py --llama DIR [--rounds 5] [--threads 1,2] MODEL...

DIR holds llama-completion. Turn by turn in one run, files in the page cache; a cell is the median over rounds. The limit of
peak memory is the mapped file, what `kvant inspect` predicts for weights, KV and activations, and 64 MiB.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

# Ten tokens of SmolLM2, eleven or fewer of the other vocabularies.
PROMPT = "The capital of France is Paris. The capital of"
CONTEXT = 512
MIB = 1 << 20


def first_output(command):
    """Seconds from exec to the end (one token is generated), and peak memory in bytes."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.read()
    seconds = time.perf_counter() - began
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise RuntimeError(f"{' '.join(command)} failed")
    return seconds, usage.ru_maxrss * 1024


def predicted(kvant, model, threads):
    command = [kvant, "inspect", model, "--json", "--ctx", str(CONTEXT), "--threads", str(threads)]
    memory = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["memory"]
    return memory["weight_bytes"] + memory["kv_bytes"] + memory["activation_bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--kvant", default="target/release/kvant")
    parser.add_argument("--llama", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    options = parser.parse_args()
    print("| model | threads | kvant, ms | llama.cpp, ms | ratio | kvant peak, MiB | limit, MiB |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for model in options.models:
        for threads in map(int, options.threads.split(",")):
            shared = ["-m", model, "-p", PROMPT, "-n", "1", "-c", str(CONTEXT), "-t", str(threads)]
            theirs = [os.path.join(options.llama, "llama-completion"), *shared, "-ngl", "0", "-no-cnv", "--no-warmup"]
            ours = [options.kvant, "run", model, "-p", PROMPT, "-n", "1", "--ctx", str(CONTEXT), "--threads", str(threads)]
            rounds = [(first_output(ours), first_output(theirs)) for _ in range(options.rounds)]
            median = lambda values: statistics.median(list(values))
            limit = os.path.getsize(model) + predicted(options.kvant, model, threads) + 64 * MIB
            print(f"| {os.path.basename(model)} | {threads} | {1000 * median(a[0] for a, _ in rounds):.0f} "
                  f"| {1000 * median(b[0] for _, b in rounds):.0f} | {median(b[0] / a[0] for a, b in rounds):.2f} "
                  f"| {max(a[1] for a, _ in rounds) / MIB:.0f} | {limit / MIB:.0f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
