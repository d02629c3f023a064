#!/usr/bin/env python3
"""Measures kvant beside llama.cpp and OpenVINO GenAI, turn by turn in one run, and prints a Markdown table.

  bench/compare.py --llama DIR [--openvino PYTHON] [--rounds 5] [--threads 1,2] [--tests p128,p512,n128,n128@4096] MODEL...

DIR holds llama-bench, built for this CPU. PYTHON is an interpreter with openvino-genai. Each round runs every engine
once; a cell is the median over rounds, a ratio the median of the rounds' ratios. llama.cpp's decode is taken with flash
attention on or off, whichever is faster in the round. "others" is the share of a core that other processes used.
--dot-peak gives the machine's int8 dot-product limit in GOP/s a thread, for the share of it that prefill reaches.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def cpu_seconds():
    fields = list(map(int, open("/proc/stat").readline().split()[1:]))
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def parse_test(text):
    head, _, depth = text.partition("@")
    return head[0], int(head[1:]), int(depth or 0)


def run_json(command, env=None):
    result = subprocess.run(command, capture_output=True, text=True, env=env)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()[-300:]}")
    return json.loads(result.stdout)


def ours(options, model, threads, kind, n, depth):
    command = [options.kvant, "bench", model, "--threads", str(threads), "--reps", "1", "--json"]
    command += ["-p", str(n), "-n", "0"] if kind == "p" else ["-p", "0", "-n", str(n), "--depth", str(depth)]
    row = run_json(command)["rows"][0]
    return row["tokens_per_second"], row.get("share_of_bandwidth")


def llama(options, model, threads, kind, n, depth):
    best = 0.0
    for flash in ("1", "0") if kind == "n" else ("1",):
        command = [os.path.join(options.llama, "llama-bench"), "-m", model, "-t", str(threads), "-ngl", "0", "-r", "1"]
        command += ["-fa", flash, "-o", "json"] + (["-p", str(n), "-n", "0"] if kind == "p" else ["-p", "0", "-n", str(n)])
        command += ["-d", str(depth)] if depth else []
        best = max(best, run_json(command)[0]["avg_ts"])
    return best


OPENVINO_WORKER = """
import json, random, sys
import openvino_genai as genai
model, threads = sys.argv[1], int(sys.argv[2])
pipe = genai.LLMPipeline(model, "CPU", {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"})
words = "time year people way day man thing woman life child world school state family student group country".split()
print("ready", flush=True)
for line in sys.stdin:
    kind, n, depth = json.loads(line)
    count = n if kind == "p" else max(depth, 1)
    prompt = " ".join(random.choice(words) for _ in range(count))
    config = genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = (1 if kind == "p" else n), True, False
    config.apply_chat_template = False
    metrics = pipe.generate([prompt], config).perf_metrics
    rate = metrics.get_num_input_tokens() / metrics.get_ttft().mean if kind == "p" else 1 / metrics.get_tpot().mean
    print(json.dumps(rate * 1000), flush=True)
"""


class OpenVino:
    """One process a model and thread count; None when it cannot load the file."""

    def __init__(self, python, model, threads):
        self.process = subprocess.Popen(
            [python, "-c", OPENVINO_WORKER, model, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.ready = self.process.stdout.readline().strip() == "ready"

    def run(self, kind, n, depth):
        if not self.ready:
            return None
        self.process.stdin.write(json.dumps([kind, n, depth]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        self.ready = bool(line)
        return float(line) if line else None

    def close(self):
        self.process.kill()
        self.process.wait()


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def show(value, digits=0):
    return "–" if value is None else f"{value:.{digits}f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--kvant", default="target/release/kvant")
    parser.add_argument("--llama", required=True)
    parser.add_argument("--openvino")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--tests", default="p128,p512,p2048,n128,n128@4096")
    parser.add_argument("--gop-per-token", type=float, default=0.0, help="10^9 operations a prefill token")
    parser.add_argument("--dot-peak", type=float, default=0.0)
    options = parser.parse_args()
    print("| model | threads | test | kvant | llama.cpp | ratio | OpenVINO | ratio | kvant, % of limit | others |")
    print("|---|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    for model in options.models:
        for threads in map(int, options.threads.split(",")):
            openvino = OpenVino(options.openvino, model, threads) if options.openvino else None
            for test in options.tests.split(","):
                kind, n, depth = parse_test(test)
                rounds = []
                busy, own, began = cpu_seconds(), sum(os.times()[:4]), time.time()
                for _ in range(options.rounds):
                    a, share = ours(options, model, threads, kind, n, depth)
                    b = llama(options, model, threads, kind, n, depth)
                    c = openvino.run(kind, n, depth) if openvino else None
                    rounds.append((a, b, c, share))
                wall = time.time() - began
                others = max(0.0, (cpu_seconds() - busy - (sum(os.times()[:4]) - own)) / wall)
                if openvino and openvino.ready:
                    others = float("nan")  # OpenVINO's own time cannot be told from that of others.
                if kind == "n":
                    limit = median([r[3] for r in rounds])
                    limit = None if limit is None else 100 * limit
                else:
                    peak = options.dot_peak * threads
                    limit = 100 * median([r[0] for r in rounds]) * options.gop_per_token / peak if peak else None
                name = {"p": "prefill", "n": "decode"}[kind] + f" {n}" + (f" at {depth}" if depth else "")
                print(f"| {os.path.basename(model)} | {threads} | {name} | {show(median([r[0] for r in rounds]))} "
                      f"| {show(median([r[1] for r in rounds]))} | {show(median([r[0] / r[1] for r in rounds]), 2)} "
                      f"| {show(median([r[2] for r in rounds]))} "
                      f"| {show(median([r[0] / r[2] if r[2] else None for r in rounds]), 2)} "
                      f"| {show(limit)} | {show(others, 2)} |", flush=True)
            if openvino:
                openvino.close()


if __name__ == "__main__":
    sys.exit(main())
