#!/usr/bin/env python3
"""How far kvant and llama.cpp each are from the f32 reference backend: KL divergence of every prediction, in nats.

  bench/distance.py --llama DIR --text FILE [--ctx 512] [--chunks 2] MODEL...

DIR holds llama-perplexity. The second half of each chunk is measured: 2 chunks of 512 tokens are 510 predictions. Our
rows are an answer's arithmetic (`kvant eval`) and a prompt's (`kvant eval --as-prompt`). Needs numpy.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy


CLIP = 16.0


def log_softmax(logits):
    """Log-probabilities of rows clipped CLIP below their largest, as llama-perplexity's file has them."""
    logits = numpy.maximum(logits - logits.max(axis=-1, keepdims=True), -CLIP)
    return logits - numpy.log(numpy.exp(logits).sum(axis=-1, keepdims=True))


def kvant_rows(path):
    """Log-probabilities of a file that `kvant eval --save-logits` wrote, `[predictions, vocab_size]`."""
    data = open(path, "rb").read()
    vocab_size, ctx, chunks, name = struct.unpack_from("<4I", data, 8)
    row = numpy.dtype([("lowest", "<f4"), ("step", "<f4"), ("level", "<u2", vocab_size)])
    rows = numpy.frombuffer(data, row, chunks * (ctx - 1 - ctx // 2), 8 + 16 + 32 + name)
    level = rows["level"].astype(numpy.float32)
    values = rows["lowest"][:, None] + rows["step"][:, None] * (level - 1)
    return log_softmax(numpy.where(level == 0, -numpy.inf, values))  # Level 0 is a probability of none.


def llama_rows(path):
    """The same of a file that llama-perplexity wrote."""
    data = open(path, "rb").read()
    ctx, vocab_size, chunks = struct.unpack_from("<3i", data, 8)
    width = (vocab_size + 1) // 2 * 2
    row = numpy.dtype([("step", "<f4"), ("lowest", "<f4"), ("level", "<u2", width)])
    rows = numpy.frombuffer(data, row, chunks * (ctx - 1 - ctx // 2), 8 + 12 + 4 * ctx * chunks)
    level = rows["level"][:, :vocab_size].astype(numpy.float32)
    return log_softmax(rows["lowest"][:, None] + rows["step"][:, None] * level)


def distance(reference, other):
    """Mean and 99th percentile of KL(reference, other), and the share of rows with the same most likely token."""
    divergence = (numpy.exp(reference) * (reference - other)).sum(axis=1)
    same = reference.argmax(axis=1) == other.argmax(axis=1)
    return divergence.mean(), numpy.quantile(divergence, 0.99), same.mean(), len(divergence)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--kvant", default="target/release/kvant")
    parser.add_argument("--llama", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--ctx", default="512")
    parser.add_argument("--chunks", default="2")
    options = parser.parse_args()
    print("| model | engine | mean KL | 99 % | same top token | predictions |")
    print("|---|---|--:|--:|--:|--:|")
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            saved = os.path.join(folder, "logits")

            def ours(*extra):
                command = [options.kvant, "eval", model, "--text", options.text, "--ctx", options.ctx]
                command += ["--chunks", options.chunks, "--save-logits", saved, *extra]
                subprocess.run(command, check=True, capture_output=True)
                return kvant_rows(saved)

            def llama():
                command = [os.path.join(options.llama, "llama-perplexity"), "-m", model, "-f", options.text]
                command += ["-c", options.ctx, "--chunks", options.chunks, "-fa", "on", "--kl-divergence-base", saved]
                subprocess.run(command, check=True, capture_output=True)
                return llama_rows(saved)

            reference = ours("--backend", "reference")
            engines = [("kvant, answers", ours), ("kvant, prompts", lambda: ours("--as-prompt")), ("llama.cpp", llama)]
            for name, rows in engines:
                mean, tail, same, count = distance(reference, rows())
                print(f"| {os.path.basename(model)} | {name} | {mean:.5f} | {tail:.4f} | {100 * same:.1f} % | {count} |",
                      flush=True)


if __name__ == "__main__":
    sys.exit(main())
