//! Narrowing the vocabulary to the tokens that may be drawn.
//!
//! Every stage keeps a set that its definition fixes (a rank or a threshold), never the order in
//! which some selection left it, and the survivors stay in the order of their ids. So a draw depends
//! on logits, options and the random number alone. No stage sorts the vocabulary.

use super::options::SamplerOptions;
use super::softmax::{CHUNK, Max, any_from, chunk_sum, exp, sum};
use std::cmp::Ordering;

/// A token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub(super) id: u32,
    /// `(logit - max) / temperature`, at most 0.
    pub(super) scaled: f32,
    /// `exp(scaled)`: the probability but for a common factor.
    pub(super) weight: f32,
}

/// Buffers for candidates, kept from token to token.
#[derive(Debug, Clone, Default)]
pub(super) struct Candidates {
    /// The survivors, in the order of their ids.
    pub(super) kept: Vec<Candidate>,
    /// Rank and weight of each candidate, while the first of them are looked for.
    ranked: Vec<(u64, f32)>,
    /// The best logits so far while looking for the top k.
    best: Vec<(u32, f32)>,
    /// The sum of the weights of each chunk of the vocabulary.
    chunk_sums: Vec<f64>,
}

/// Logits looked at together when few of them will pass a threshold.
const SCAN: usize = 64;

/// How far below the largest scaled logit the tokens of a nucleus are looked for, step by step.
const NUCLEUS_DEPTHS: [f32; 3] = [-8.0, -20.0, f32::NEG_INFINITY];

impl Candidates {
    /// Fills [`Candidates::kept`] with the tokens that pass all stages after the temperature.
    /// `false` when no stage applies and every token may be drawn: nothing is filled then.
    pub(super) fn narrow(&mut self, logits: &[f32], max: Max, options: &SamplerOptions) -> bool {
        let temperature = options.temperature;
        let top_k = options.top_k as usize;
        let (typical_p, top_p, min_p) = (options.typical_p, options.top_p, options.min_p);
        self.kept.clear();
        if top_k > 0 && top_k < logits.len() {
            self.gather_top(logits, top_k);
            self.kept.extend(
                self.best
                    .iter()
                    .map(|&(id, logit)| Candidate::new(id, logit, max, temperature)),
            );
            self.kept.sort_unstable_by_key(|c| c.id);
        } else if typical_p < 1.0 {
            self.gather(logits, max, temperature, f32::NEG_INFINITY);
        } else if top_p < 1.0 {
            let target = f64::from(top_p) * sum(logits, max.logit, temperature);
            for depth in NUCLEUS_DEPTHS {
                self.kept.clear();
                self.gather(logits, max, temperature, depth);
                if self.mass() >= target {
                    break;
                }
            }
            self.keep_nucleus(target);
            self.keep_probable(min_p);
            return true;
        } else if min_p > 0.0 {
            // A little deeper than `ln(min_p)`, which rounding may put on either side.
            self.gather(logits, max, temperature, min_p.ln() - 0.01);
        } else {
            return false;
        }
        if typical_p < 1.0 {
            self.keep_typical(typical_p);
        }
        if top_p < 1.0 {
            self.keep_nucleus(f64::from(top_p) * self.mass());
        }
        self.keep_probable(min_p);
        true
    }

    /// Leaves in `best` the `n` largest of the logits that are not negative infinity; of equals the
    /// lower ids.
    fn gather_top(&mut self, logits: &[f32], n: usize) {
        let best = &mut self.best;
        best.clear();
        // From the threshold on a logit matters. It is the next after the smallest of the best so far:
        // an equal one that comes later has a higher id.
        let mut threshold = f32::MIN;
        let room = n.saturating_mul(2).max(n + SCAN);
        for (at, chunk) in logits.chunks(SCAN).enumerate() {
            if !any_from(chunk, threshold) {
                continue;
            }
            for (offset, &logit) in chunk.iter().enumerate() {
                if logit >= threshold {
                    best.push(((at * SCAN + offset) as u32, logit));
                }
            }
            if best.len() >= room {
                best.select_nth_unstable_by(n - 1, larger_first);
                best.truncate(n);
                threshold = best[n - 1].1.next_up();
            }
        }
        if best.len() > n {
            best.select_nth_unstable_by(n - 1, larger_first);
            best.truncate(n);
        }
    }

    /// The `n` likeliest tokens with their logits, the likeliest first; of equals the lower ids.
    pub(super) fn top(&mut self, logits: &[f32], n: usize) -> &[(u32, f32)] {
        if n == 0 {
            return &[];
        }
        self.gather_top(logits, n);
        self.best.sort_unstable_by(larger_first);
        &self.best
    }

    /// Appends the tokens whose scaled logits are at least `depth`, except impossible ones.
    fn gather(&mut self, logits: &[f32], max: Max, temperature: f32, depth: f32) {
        // Scaling rounds, so the whole chunk is scaled and compared exactly once it is near.
        let near = max.logit + depth * temperature * 1.001;
        for (at, chunk) in logits.chunks(SCAN).enumerate() {
            if !any_from(chunk, near) {
                continue;
            }
            for (offset, &logit) in chunk.iter().enumerate() {
                if logit < near || logit == f32::NEG_INFINITY {
                    continue;
                }
                let candidate =
                    Candidate::new((at * SCAN + offset) as u32, logit, max, temperature);
                if candidate.scaled >= depth {
                    self.kept.push(candidate);
                }
            }
        }
    }

    /// Draws from all tokens without a list of them: first the chunk in which the point lies, then the
    /// token. `point` is a fraction of the whole, below 1.
    pub(super) fn draw_from_all(
        &mut self,
        logits: &[f32],
        max: Max,
        temperature: f32,
        point: f64,
    ) -> u32 {
        self.chunk_sums.clear();
        self.chunk_sums.extend(
            logits
                .chunks(CHUNK)
                .map(|chunk| chunk_sum(chunk, max.logit, temperature)),
        );
        let target = point * self.chunk_sums.iter().sum::<f64>();
        let mut before = 0.0;
        let mut drawn = max.id;
        for (at, &mass) in self.chunk_sums.iter().enumerate() {
            if before + mass <= target {
                before += mass;
                continue;
            }
            // Token by token the sum may round to a little less than the chunk's: then the last one.
            for (offset, &logit) in logits[at * CHUNK..].iter().take(CHUNK).enumerate() {
                let weight = exp((logit - max.logit) / temperature);
                if weight > 0.0 {
                    drawn = (at * CHUNK + offset) as u32;
                    before += f64::from(weight);
                    if before > target {
                        break;
                    }
                }
            }
            break;
        }
        drawn
    }

    /// Draws from the candidates that are left. `point` is a fraction of their mass, below 1.
    pub(super) fn draw(&self, point: f64) -> Option<u32> {
        let target = point * self.mass();
        let mut before = 0.0;
        let mut drawn = None;
        for candidate in self.kept.iter().filter(|c| c.weight > 0.0) {
            drawn = Some(candidate.id);
            before += f64::from(candidate.weight);
            if before > target {
                break;
            }
        }
        drawn
    }

    /// The sum of all weights.
    pub(super) fn mass(&self) -> f64 {
        self.kept.iter().map(|c| f64::from(c.weight)).sum()
    }

    /// Keeps the fewest likeliest candidates that weigh `target` together.
    fn keep_nucleus(&mut self, target: f64) {
        self.keep_smallest(target, |c| 0.0 - c.scaled);
    }

    /// Keeps the fewest candidates nearest in surprise to the entropy that weigh the fraction
    /// `typical_p` together.
    ///
    /// With `p = weight / mass`, surprise `-ln p` and its mean, the entropy, hold the same
    /// `ln mass`, so their difference is that of the scaled logit and its mean.
    fn keep_typical(&mut self, typical_p: f32) {
        let mass = self.mass();
        let mean: f64 = self
            .kept
            .iter()
            .filter(|c| c.weight > 0.0)
            .map(|c| f64::from(c.weight) * f64::from(c.scaled))
            .sum::<f64>()
            / mass;
        self.keep_smallest(f64::from(typical_p) * mass, |c| {
            (f64::from(c.scaled) - mean).abs() as f32
        });
    }

    /// Keeps the fewest candidates, taken in the order of `key` and of equals by id, that weigh
    /// `target` together; all when they weigh less. `key` is not negative.
    ///
    /// In linear time: the half in which the last of them lies is split again and again.
    fn keep_smallest(&mut self, target: f64, key: impl Fn(&Candidate) -> f32) {
        const FEW: usize = 32;
        // Floats that are not negative are in the order of their bits.
        let rank = |c: &Candidate| u64::from(key(c).to_bits()) << 32 | u64::from(c.id);
        self.ranked.clear();
        self.ranked
            .extend(self.kept.iter().map(|c| (rank(c), c.weight)));
        let mut rest = self.ranked.as_mut_slice();
        let mut before = 0.0;
        while rest.len() > FEW {
            let middle = rest.len() / 2;
            rest.select_nth_unstable_by_key(middle, |r| r.0);
            let (first, second) = rest.split_at_mut(middle);
            let mass: f64 = first.iter().map(|r| f64::from(r.1)).sum();
            if before + mass >= target {
                rest = first;
            } else {
                before += mass;
                rest = second;
            }
        }
        rest.sort_unstable_by_key(|r| r.0);
        let last = rest.iter().find(|r| {
            before += f64::from(r.1);
            before >= target
        });
        if let Some(&(last, _)) = last {
            self.kept.retain(|c| rank(c) <= last);
        }
    }

    /// Keeps candidates at least `min_p` times as probable as the likeliest one left.
    fn keep_probable(&mut self, min_p: f32) {
        if min_p > 0.0 {
            let largest = self.kept.iter().fold(0.0, |m: f32, c| m.max(c.weight));
            let threshold = largest * min_p;
            self.kept.retain(|c| c.weight >= threshold);
        }
    }
}

impl Candidate {
    fn new(id: u32, logit: f32, max: Max, temperature: f32) -> Self {
        let scaled = (logit - max.logit) / temperature;
        Self {
            id,
            scaled,
            weight: exp(scaled),
        }
    }
}

fn larger_first(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}
