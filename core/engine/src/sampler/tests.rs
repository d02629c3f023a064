//! The sampler against the definitions of its stages, in 64-bit floats over the whole vocabulary.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A distribution by the definitions, and how near it came to being another one.
struct Naive {
    /// Token and probability, by id.
    probs: Vec<(u32, f64)>,
    /// The smallest relative distance of a sum or ratio from the threshold it was held against.
    margin: f64,
}

impl Naive {
    fn new(options: &SamplerOptions, logits: &[f32]) -> Self {
        let mut naive = Self {
            probs: Vec::new(),
            margin: f64::INFINITY,
        };
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        naive.probs = (0..)
            .zip(logits)
            .map(|(id, &x)| {
                let scaled = (f64::from(x) - f64::from(max)) / f64::from(options.temperature);
                (id, scaled.exp())
            })
            .filter(|(_, w)| *w > 0.0)
            .collect();
        naive.normalise();
        if options.top_k > 0 {
            let k = (options.top_k as usize).min(naive.probs.len());
            naive
                .probs
                .sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            naive.probs.truncate(k);
            naive.normalise();
        }
        if options.typical_p < 1.0 {
            let entropy: f64 = naive.probs.iter().map(|(_, p)| -p * p.ln()).sum();
            // Distances that only rounding tells apart are no order.
            naive.keep(options.typical_p, |p| {
                ((-p.ln() - entropy).abs() * 1e5).round()
            });
        }
        if options.top_p < 1.0 {
            naive.keep(options.top_p, |p| -p);
        }
        if options.min_p > 0.0 {
            let largest = naive.probs.iter().fold(0.0, |m: f64, (_, p)| m.max(*p));
            let threshold = f64::from(options.min_p) * largest;
            for (_, p) in &naive.probs {
                naive.margin = naive.margin.min((p / threshold - 1.0).abs());
            }
            naive.probs.retain(|(_, p)| *p >= threshold);
        }
        naive.normalise();
        naive
    }

    /// Keeps the fewest tokens in the order of `key` that sum to `mass`.
    fn keep(&mut self, mass: f32, key: impl Fn(f64) -> f64) {
        self.normalise();
        self.probs
            .sort_by(|a, b| key(a.1).total_cmp(&key(b.1)).then(a.0.cmp(&b.0)));
        let (mut sum, mut n) = (0.0, 0);
        for (_, p) in &self.probs {
            self.margin = self.margin.min((sum - f64::from(mass)).abs());
            sum += p;
            n += 1;
            if sum >= f64::from(mass) {
                break;
            }
        }
        self.margin = self.margin.min((sum - f64::from(mass)).abs());
        self.probs.truncate(n);
        self.normalise();
    }

    fn normalise(&mut self) {
        let sum: f64 = self.probs.iter().map(|(_, p)| p).sum();
        self.probs.iter_mut().for_each(|(_, p)| *p /= sum);
        self.probs.sort_by_key(|(id, _)| *id);
    }

    /// The token at a point of the cumulative distribution; `None` when another is too near.
    fn draw(&self, point: f64) -> Option<u32> {
        let mut sum = 0.0;
        for (id, p) in &self.probs {
            if (sum - point).abs() < 1e-5 && sum > 0.0 {
                return None;
            }
            sum += p;
            if sum > point {
                return ((sum - point) > 1e-5).then_some(*id);
            }
        }
        None
    }
}

fn narrowing() -> impl Strategy<Value = SamplerOptions> {
    let maybe = |on: std::ops::Range<f32>, off: f32| prop_oneof![Just(off), on];
    (
        prop_oneof![Just(1.0f32), 0.2f32..5.0],
        prop_oneof![Just(0u32), 1u32..80],
        maybe(0.0..1.0, 1.0),
        maybe(0.001..1.0, 0.0),
        maybe(0.05..1.0, 1.0),
        any::<u64>(),
    )
        .prop_map(
            |(temperature, top_k, top_p, min_p, typical_p, seed)| SamplerOptions {
                temperature,
                top_k,
                top_p,
                min_p,
                typical_p,
                seed: Some(seed),
                ..SamplerOptions::default()
            },
        )
}

/// Peaked, flat, with many equal values, with impossible tokens; longer than a chunk at times.
fn logits() -> impl Strategy<Value = Vec<f32>> {
    (prop_oneof![1usize..200, 900usize..3000], 0..4)
        .prop_flat_map(|(size, kind)| {
            let element = match kind {
                0 => (-15.0f32..15.0).boxed(),
                1 => (-6i32..6).prop_map(|x| x as f32 * 0.5).boxed(),
                2 => (-0.01f32..0.01).boxed(),
                _ => prop_oneof![4 => -9.0f32..9.0, 1 => Just(f32::NEG_INFINITY)].boxed(),
            };
            prop::collection::vec(element, size)
        })
        .prop_filter("a possible token", |l| l.iter().any(|x| x.is_finite()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn the_choice_is_narrowed_as_defined(options in narrowing(), logits in logits()) {
        let naive = Naive::new(&options, &logits);
        prop_assume!(naive.margin > 1e-5);
        let mut sampler = Sampler::new(options.clone(), logits.len()).unwrap();
        let max = softmax::find_max(&logits).unwrap();
        if sampler.candidates.narrow(&logits, max, &options) {
            let mass = sampler.candidates.mass();
            let kept: Vec<_> = sampler.candidates.kept.iter().filter(|c| c.weight > 0.0).collect();
            let ids: Vec<u32> = kept.iter().map(|c| c.id).collect();
            // Below e^-87 of the likeliest, 32-bit weights are zero.
            let want: Vec<_> = naive.probs.iter().filter(|(_, p)| *p > 1e-37).copied().collect();
            let want_ids: Vec<u32> = want.iter().map(|(id, _)| *id).collect();
            if options.typical_p < 1.0 {
                // Equal distances above and below the entropy may be told apart by rounding alone;
                // then what is kept still weighs the same.
                prop_assert_eq!(ids.len(), want_ids.len());
            } else {
                prop_assert_eq!(&ids, &want_ids);
            }
            if ids == want_ids {
                for (c, (_, p)) in kept.iter().zip(&want) {
                    prop_assert!((f64::from(c.weight) / mass - p).abs() < 1e-5);
                }
            }
        } else {
            prop_assert_eq!(options.top_k as usize * usize::from((options.top_k as usize) < logits.len()), 0);
            prop_assert!(options.top_p == 1.0 && options.typical_p == 1.0 && options.min_p == 0.0);
        }
    }

    #[test]
    fn the_draw_is_the_token_at_the_point(
        mut options in narrowing(),
        logits in logits(),
        tokens in prop::collection::vec(0u32..1, 0..50),
    ) {
        options.typical_p = 1.0;
        let naive = Naive::new(&options, &logits);
        prop_assume!(naive.margin > 1e-5);
        let point = random::uniform(options.seed.unwrap(), tokens.len() as u64);
        if let Some(want) = naive.draw(point) {
            let mut sampler = Sampler::new(options, logits.len()).unwrap();
            let mut given = logits.clone();
            let got = sampler.sample(&mut given, &tokens, 0).unwrap();
            prop_assert_eq!(got.id, want);
            prop_assert_eq!(given, logits);
        }
    }

    #[test]
    fn penalties_and_bias_change_logits_as_defined(
        logits in prop::collection::vec(prop_oneof![9 => -9.0f32..9.0, 1 => Just(f32::NEG_INFINITY)], 8),
        tokens in prop::collection::vec(0u32..8, 0..40),
        n_prompt in 0usize..50,
        window in prop::option::of(0u32..50),
        (repetition, presence, frequency) in (0.5f32..2.0, -2.0f32..2.0, -2.0f32..2.0),
        bias in prop::collection::btree_map(0u32..8, -9.0f32..9.0, 0..4),
    ) {
        let options = SamplerOptions {
            repetition_penalty: repetition,
            presence_penalty: presence,
            frequency_penalty: frequency,
            penalty_window: window,
            logit_bias: bias.clone(),
            ..SamplerOptions::default()
        };
        let start = tokens.len() - window.map_or(tokens.len(), |w| tokens.len().min(w as usize));
        let mut sampler = Sampler::new(options, 8).unwrap();
        let mut changed = logits.clone();
        sampler.adjust(&mut changed, &tokens, n_prompt);
        for id in 0..8u32 {
            let seen = tokens[start..].contains(&id);
            let n = (start.max(n_prompt)..tokens.len()).filter(|&i| tokens[i] == id).count() as f64;
            let mut want = f64::from(logits[id as usize]) + f64::from(*bias.get(&id).unwrap_or(&0.0));
            if seen && want > 0.0 {
                want /= f64::from(repetition);
            } else if seen {
                want *= f64::from(repetition);
            }
            want -= n * f64::from(frequency);
            if n > 0.0 {
                want -= f64::from(presence);
            }
            let got = f64::from(changed[id as usize]);
            prop_assert!(got == want || (got - want).abs() < 1e-3, "{} {} {}", id, got, want);
        }
        sampler.changes.revert(&mut changed);
        prop_assert_eq!(changed, logits);
    }

    #[test]
    fn dry_penalises_as_defined(
        tokens in prop::collection::vec(0u32..4, 0..60),
        range in prop::option::of(0u32..70),
        allowed_length in 0u32..5,
        sequence_breakers in prop::collection::vec(prop::collection::vec(0u32..5, 1..4), 0..3),
    ) {
        let dry = DryOptions { multiplier: 0.5, base: 1.5, allowed_length, range, sequence_breakers };
        let text = penalties::last(&tokens, range);
        let mut want = BTreeMap::<u32, usize>::new();
        for at in 0..text.len() {
            // `text[..at]` is the earlier passage, `text[at]` what followed.
            let unbroken = (0..text.len())
                .find(|&n| dry.sequence_breakers.iter().any(|b| text[..text.len() - n].ends_with(b)))
                .unwrap_or(text.len());
            let length = (0..=at.min(unbroken))
                .filter(|&n| text[at - n..at] == text[text.len() - n..])
                .max()
                .unwrap_or(0);
            let is_breaker = dry.sequence_breakers.contains(&vec![text[at]]);
            if length >= (allowed_length as usize).max(1) && !is_breaker {
                let best = want.entry(text[at]).or_default();
                *best = length.max(*best);
            }
        }
        let options = SamplerOptions { dry, ..SamplerOptions::default() };
        let mut sampler = Sampler::new(options, 5).unwrap();
        let mut logits = [1.0f32; 5];
        sampler.adjust(&mut logits, &tokens, 0);
        for id in 0..5u32 {
            let penalty = want
                .get(&id)
                .map_or(0.0, |&n| 0.5 * 1.5f64.powi(n as i32 - allowed_length as i32));
            let got = f64::from(logits[id as usize]);
            prop_assert!((got - (1.0 - penalty)).abs() < 1e-3 * (1.0 + penalty), "{} {}", id, got);
        }
    }

    #[test]
    fn logprobs_are_of_the_models_own_distribution(
        logits in logits(),
        n_top in 0u32..20,
        bias in -50.0f32..50.0,
    ) {
        let options = SamplerOptions {
            temperature: 0.0,
            logit_bias: BTreeMap::from([(0, bias)]),
            logprobs: Some(n_top),
            ..SamplerOptions::default()
        };
        let mut sampler = Sampler::new(options, logits.len()).unwrap();
        let got = sampler.sample(&mut logits.clone(), &[], 0).unwrap();
        let logprobs = got.logprobs.unwrap();
        let log_sum = logits.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
        let mut want: Vec<(u32, f64)> =
            (0..).zip(&logits).map(|(id, &x)| (id, f64::from(x) - log_sum)).collect();
        let chosen = want[got.id as usize].1;
        prop_assert!((f64::from(logprobs.chosen) - chosen).abs() < 1e-4 || chosen == f64::NEG_INFINITY);
        want.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        want.retain(|(_, p)| *p > f64::NEG_INFINITY);
        want.truncate(n_top as usize);
        prop_assert_eq!(logprobs.top.len(), want.len());
        for (got, want) in logprobs.top.iter().zip(&want) {
            prop_assert_eq!(got.0, want.0);
            prop_assert!((f64::from(got.1) - want.1).abs() < 1e-4);
        }
    }
}

/// Options at and between all of their limits.
fn any_options() -> impl Strategy<Value = SamplerOptions> {
    let between = |min: f32, max: f32| prop_oneof![Just(min), Just(max), min..=max];
    let penalties = (
        between(0.01, 100.0),
        between(-100.0, 100.0),
        between(-100.0, 100.0),
        any::<Option<u32>>(),
        prop::collection::btree_map(0u32..20, between(-1e4, 1e4), 0..5),
    );
    let dry = (
        between(0.0, 100.0),
        between(1.0, 100.0),
        any::<u32>(),
        any::<Option<u32>>(),
        prop::collection::vec(prop::collection::vec(0u32..20, 1..3), 0..3),
    );
    let rest = (
        prop_oneof![any::<u32>(), 0u32..30],
        between(0.0, 1.0),
        between(0.0, 1.0),
        between(0.0, 1.0),
        prop_oneof![
            between(0.0, 100.0),
            Just(f32::from_bits(1)),
            Just(f32::MIN_POSITIVE)
        ],
        any::<Option<u64>>(),
        prop::option::of(0u32..=256),
    );
    (penalties, dry, rest).prop_map(|(p, d, r)| SamplerOptions {
        repetition_penalty: p.0,
        presence_penalty: p.1,
        frequency_penalty: p.2,
        penalty_window: p.3,
        logit_bias: p.4,
        dry: DryOptions {
            multiplier: d.0,
            base: d.1,
            allowed_length: d.2,
            range: d.3,
            sequence_breakers: d.4,
        },
        top_k: r.0,
        top_p: r.1,
        min_p: r.2,
        typical_p: r.3,
        temperature: r.4,
        seed: r.5,
        logprobs: r.6,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// Whatever the options and logits: a possible token, or the error that the logits call for, and
    /// the same again from a sampler that has been used.
    #[test]
    fn a_possible_token_or_the_right_error(
        options in any_options(),
        mut logits in prop::collection::vec(
            prop_oneof![
                20 => -20.0f32..20.0,
                4 => any::<f32>(),
                2 => Just(f32::NEG_INFINITY),
                1 => prop_oneof![Just(f32::MAX), Just(f32::MIN)],
            ],
            20..80,
        ),
        tokens in prop::collection::vec(prop_oneof![20 => 0u32..20, 1 => any::<u32>()], 0..60),
        n_prompt in 0usize..80,
    ) {
        let before: Vec<u32> = logits.iter().map(|x| x.to_bits()).collect();
        let mut sampler = Sampler::new(options, logits.len()).unwrap();
        let got = sampler.sample(&mut logits, &tokens, n_prompt);
        prop_assert_eq!(&before, &logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
        prop_assert_eq!(&got, &sampler.sample(&mut logits, &tokens, n_prompt));
        let broken = logits.iter().position(|x| x.is_nan() || *x == f32::INFINITY);
        match (got, broken) {
            (Err(SamplerError::BadLogit { token, .. }), Some(at)) => prop_assert_eq!(token, at as u32),
            (Err(SamplerError::NoCandidate), None) => {
                prop_assert!(logits.iter().all(|x| *x == f32::NEG_INFINITY));
            }
            (Ok(token), None) => prop_assert!(logits[token.id as usize].is_finite()),
            (got, broken) => prop_assert!(false, "{:?} {:?}", got, broken),
        }
    }
}

fn sample(options: SamplerOptions, logits: &[f32], tokens: &[u32]) -> Result<u32, SamplerError> {
    let mut logits = logits.to_vec();
    let mut sampler = Sampler::new(options, logits.len())?;
    Ok(sampler.sample(&mut logits, tokens, 0)?.id)
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    let logits = [0.0, 3.0, 1.0, 3.0];
    assert_eq!(sample(SamplerOptions::greedy(), &logits, &[]), Ok(1));
    let mut options = SamplerOptions::greedy();
    options.logit_bias = BTreeMap::from([(1, -0.5)]);
    assert_eq!(sample(options, &logits, &[]), Ok(3));
}

#[test]
fn broken_logits_are_errors_whatever_the_options() {
    let all = [
        SamplerOptions::greedy(),
        SamplerOptions::default(),
        SamplerOptions {
            top_k: 2,
            ..Default::default()
        },
        SamplerOptions {
            repetition_penalty: 2.0,
            logit_bias: BTreeMap::from([(1, 5.0)]),
            logprobs: Some(1),
            ..Default::default()
        },
    ];
    for options in all {
        for (value, name) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
            assert_eq!(
                sample(options.clone(), &[1.0, value, 2.0], &[1, 1, 1]),
                Err(SamplerError::BadLogit {
                    token: 1,
                    value: name
                })
            );
        }
        assert_eq!(
            sample(options.clone(), &[f32::NEG_INFINITY; 3], &[1]),
            Err(SamplerError::NoCandidate)
        );
    }
}

#[test]
fn extreme_logits_choose_the_largest() {
    let options = SamplerOptions {
        temperature: f32::MIN_POSITIVE,
        top_p: 0.5,
        min_p: 0.5,
        repetition_penalty: 0.01,
        presence_penalty: -100.0,
        ..SamplerOptions::default()
    };
    assert_eq!(
        sample(options.clone(), &[f32::MIN, f32::MAX, 0.0], &[1]),
        Ok(1)
    );
    assert_eq!(sample(options, &[f32::MIN, f32::MAX, 1e38], &[2]), Ok(1));
}

#[test]
fn another_length_is_an_error() {
    let mut sampler = Sampler::new(SamplerOptions::default(), 3).unwrap();
    assert_eq!(
        sampler.sample(&mut [0.0; 4], &[], 0),
        Err(SamplerError::LogitCount { got: 4, wanted: 3 })
    );
    // Tokens outside the vocabulary are passed over by the penalties.
    let options = SamplerOptions {
        repetition_penalty: 2.0,
        ..SamplerOptions::default()
    };
    assert!(sample(options, &[0.0; 3], &[7, 7, 7]).is_ok());
}

/// Draws at 40,000 positions follow the distribution: Pearson's test, with a fixed seed.
#[test]
fn draws_follow_the_distribution() {
    let logits: Vec<f32> = (0..40).map(|i| ((i * 37) % 11) as f32 * 0.35).collect();
    let cases = [
        SamplerOptions::default(),
        SamplerOptions {
            temperature: 0.7,
            ..Default::default()
        },
        SamplerOptions {
            top_k: 12,
            ..Default::default()
        },
        SamplerOptions {
            top_p: 0.83,
            ..Default::default()
        },
        SamplerOptions {
            min_p: 0.09,
            temperature: 1.7,
            ..Default::default()
        },
    ];
    for (seed, mut options) in (3u64..).zip(cases) {
        options.seed = Some(seed);
        let naive = Naive::new(&options, &logits);
        let mut sampler = Sampler::new(options, logits.len()).unwrap();
        const N: usize = 40_000;
        let mut counts = vec![0u32; logits.len()];
        let tokens = vec![0u32; N];
        let mut work = logits.clone();
        for position in 0..N {
            let token = sampler.sample(&mut work, &tokens[..position], 0).unwrap();
            counts[token.id as usize] += 1;
        }
        let mut statistic = 0.0;
        let mut n_drawn = 0;
        for &(id, p) in &naive.probs {
            let expected = p * N as f64;
            assert!(expected > 20.0);
            statistic += (f64::from(counts[id as usize]) - expected).powi(2) / expected;
            n_drawn += counts[id as usize];
        }
        assert_eq!(n_drawn as usize, N, "nothing else is drawn");
        // The 99.9 % quantile of chi-square, by Wilson and Hilferty.
        let freedom = naive.probs.len() as f64 - 1.0;
        let ninth = 2.0 / (9.0 * freedom);
        let limit = freedom * (1.0 - ninth + 3.09 * ninth.sqrt()).powi(3);
        assert!(statistic < limit, "{statistic} over {limit}");
    }
}
