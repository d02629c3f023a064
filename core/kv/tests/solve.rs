//! Plans under a budget, from measurements to the front, against plain search.

use kvant_kv::solve::{
    ClusterRule, Front, KvBudget, KvMeasure, LayerSensitivity, LossSource, MeasuredModel, PairLoss,
    SENSITIVITY_VERSION, Sensitivity, SensitivityError, SideLoss, Solution, SolveError,
    SolveOptions, Verdict, clusters, front, kept_bytes, solve,
};
use kvant_kv::{KvFormat, KvPlan};
use proptest::prelude::*;

fn side(format: &str, block_bytes: u64, loss: f64) -> SideLoss {
    SideLoss {
        format: format.to_owned(),
        block_bytes,
        loss,
        estimated: false,
    }
}

fn pair(k: &str, v: &str, kept: f64, block_bytes: u64, loss: f64) -> PairLoss {
    PairLoss {
        k: k.to_owned(),
        v: v.to_owned(),
        kept,
        block_bytes,
        loss,
        estimated: false,
    }
}

/// A layer of 64 elements of keys and 64 of values: f32, f16 and two that are made up.
fn layer(keys: [f64; 3], values: [f64; 3]) -> LayerSensitivity {
    let table = |losses: [f64; 3]| {
        let [f16, eight, four] = losses;
        vec![
            side("f16", 4096, f16),
            side("eight", 2176, eight),
            side("four", 1152, four),
        ]
    };
    LayerSensitivity {
        elements_per_token: 128,
        window: None,
        keys: table(keys),
        values: table(values),
        pairs: Vec::new(),
    }
}

fn sensitivity(layers: Vec<LayerSensitivity>) -> Sensitivity {
    Sensitivity {
        version: SENSITIVITY_VERSION,
        model: MeasuredModel {
            name: "tiny".to_owned(),
            hash: "c0ffee".to_owned(),
        },
        text: "plays.txt".to_owned(),
        tokens: 2047,
        layers,
    }
}

fn exact() -> SolveOptions {
    SolveOptions::default()
}

fn by_slopes() -> SolveOptions {
    SolveOptions {
        table_bytes_max: 0,
        ..SolveOptions::default()
    }
}

/// Losses that are whole eighths, so that sums do not depend on their order.
fn eighths() -> impl Strategy<Value = [f64; 3]> {
    prop::array::uniform3(0u32..64).prop_map(|losses| losses.map(|loss| f64::from(loss) / 8.0))
}

fn measured(n_layers: std::ops::Range<usize>) -> impl Strategy<Value = Sensitivity> {
    let layer = (eighths(), eighths()).prop_map(|(keys, values)| layer(keys, values));
    prop::collection::vec(layer, n_layers).prop_map(sensitivity)
}

/// Bytes a block and loss of a combination of candidates.
type Cost = (u64, f64);

/// All combinations of one candidate a layer.
fn combinations(sensitivity: &Sensitivity) -> Vec<Cost> {
    sensitivity
        .layers
        .iter()
        .fold(vec![(0, 0.0)], |sums, layer| {
            let candidates = layer.candidates();
            let with = |&(bytes, loss): &Cost| {
                candidates
                    .iter()
                    .map(move |one| (bytes + one.block_bytes, loss + one.loss))
                    .collect::<Vec<_>>()
            };
            sums.iter().flat_map(with).collect()
        })
}

fn check(solution: &Solution, sensitivity: &Sensitivity) {
    assert!(solution.bytes <= solution.limit_bytes);
    assert_eq!(solution.layers.len(), sensitivity.layers.len());
    assert!(solution.lower_bound <= solution.loss);
    let loss: f64 = solution.layers.iter().map(|layer| layer.chosen.loss).sum();
    assert!((loss - solution.loss).abs() < 1e-9);
    let mut seen: Vec<usize> = solution.clusters.concat();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..sensitivity.layers.len()));
    for (l, (layer, measured)) in solution.layers.iter().zip(&sensitivity.layers).enumerate() {
        assert!(solution.clusters[layer.cluster].contains(&l));
        assert!(solution.reason(l).is_some());
        let candidates = measured.candidates();
        let considered: Vec<_> = layer.considered.iter().map(|one| &one.candidate).collect();
        assert_eq!(considered, candidates.iter().collect::<Vec<_>>());
        let mut n_chosen = 0;
        for one in &layer.considered {
            let candidate = &one.candidate;
            let other = |by: &str| candidates.iter().find(|other| other.name() == by);
            match &one.verdict {
                Verdict::Chosen => {
                    n_chosen += 1;
                    assert_eq!(candidate, &layer.chosen);
                }
                Verdict::Kept => {}
                Verdict::Dominated { by } => {
                    let other = other(by).unwrap();
                    assert!(other.block_bytes <= candidate.block_bytes);
                    assert!(other.loss <= candidate.loss);
                }
            }
        }
        assert_eq!(n_chosen, 1);
        if let Some(up) = &layer.up {
            assert!(up.block_bytes > 0 && up.loss < 0.0 && up.price > 0.0);
        }
        if let Some(down) = &layer.down {
            assert!(down.block_bytes < 0 && down.loss > 0.0 && down.price > 0.0);
        }
    }
    assert_eq!(solution.reason(sensitivity.layers.len()), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_plan_is_the_best_there_is(all in measured(1..4), bytes in 2304u64..26_000) {
        let budget = KvBudget::BytesPerToken(bytes as f64 / 32.0);
        let combinations = combinations(&all);
        let least = combinations.iter().map(|&(bytes, _)| bytes).min().unwrap();
        let best = combinations
            .iter()
            .filter(|&&(cost, _)| cost <= bytes)
            .map(|&(_, loss)| loss)
            .min_by(f64::total_cmp);
        let solution = solve(&all, budget, &exact());
        let Some(best) = best else {
            let error = solution.unwrap_err();
            let SolveError::Infeasible { least_bytes, .. } = error else {
                panic!("{error}");
            };
            prop_assert_eq!(least_bytes, least);
            return Ok(());
        };
        let solution = solution.unwrap();
        check(&solution, &all);
        prop_assert!(solution.exact);
        prop_assert_eq!(solution.loss, best);
        // Of plans with that loss, the cheapest.
        let cheapest = combinations.iter().filter(|&&(_, loss)| loss == best).map(|&(bytes, _)| bytes).min();
        prop_assert_eq!(Some(solution.bytes), cheapest);

        let good = solve(&all, budget, &by_slopes()).unwrap();
        check(&good, &all);
        prop_assert!(good.loss >= best && best >= good.lower_bound - 1e-9);
        prop_assert!(!good.exact || good.loss <= best + 1e-9);
    }

    #[test]
    fn more_bytes_never_lose_more(all in measured(1..12), budgets in prop::array::uniform2(2.25f64..17.0)) {
        let [low, high] = if budgets[0] < budgets[1] { budgets } else { [budgets[1], budgets[0]] };
        let low = solve(&all, KvBudget::AverageBits(low), &exact());
        let high = solve(&all, KvBudget::AverageBits(high), &exact());
        if let Ok(low) = low {
            let high = high.unwrap();
            prop_assert!(high.loss <= low.loss);
            prop_assert!(high.lower_bound <= low.lower_bound + 1e-9);
            prop_assert!(high.average_bits <= 16.0);
        }
    }

    #[test]
    fn the_same_measurements_give_the_same_plan(all in measured(1..12), bits in 4.5f64..16.0) {
        for options in [exact(), by_slopes()] {
            let options = SolveOptions { clusters: Some(ClusterRule::default()), ..options };
            let once = solve(&all, KvBudget::AverageBits(bits), &options);
            prop_assert_eq!(&once, &solve(&all.clone(), KvBudget::AverageBits(bits), &options));
            if let Ok(once) = once {
                let text = serde_json::to_string(&once).unwrap();
                let read: Solution = serde_json::from_str(&text).unwrap();
                // Losses a byte may change in the last digit that is written.
                prop_assert_eq!(read.formats(), once.formats());
                prop_assert_eq!((read.bytes, read.loss, read.clusters), (once.bytes, once.loss, once.clusters));
            }
        }
        let text = serde_json::to_string(&all).unwrap();
        prop_assert_eq!(serde_json::from_str::<Sensitivity>(&text).unwrap(), all);
    }

    #[test]
    fn every_point_of_the_front_is_what_solving_for_it_gives(all in measured(1..8)) {
        let plans = front(&all, KvMeasure::Block, &exact(), usize::MAX).unwrap();
        prop_assert!(plans.exact);
        prop_assert_eq!(plans.points.len(), plans.n_plans);
        prop_assert!(plans.points.is_sorted_by(|a, b| a.bytes < b.bytes && a.loss > b.loss));
        for point in plans.points.iter().step_by(plans.points.len() / 8 + 1) {
            let budget = KvBudget::BytesPerToken(point.bytes as f64 / 32.0);
            let solution = solve(&all, budget, &exact()).unwrap();
            prop_assert_eq!((solution.bytes, solution.loss), (point.bytes, point.loss));
            prop_assert_eq!(Some(solution.formats()), plans.formats(point));
        }
        let few = front(&all, KvMeasure::Block, &exact(), 4).unwrap();
        prop_assert!(few.points.len() <= 4 && few.n_plans == plans.n_plans);
        prop_assert_eq!(few.points.first(), plans.points.first());
        prop_assert_eq!(few.points.last(), plans.points.last());
        let text = serde_json::to_string(&few).unwrap();
        prop_assert_eq!(serde_json::from_str::<Front>(&text).unwrap(), few);

        let corners = front(&all, KvMeasure::Block, &by_slopes(), usize::MAX).unwrap();
        for point in &corners.points {
            let bytes = plans.points.iter().map(|p| (p.bytes, p.loss)).collect::<Vec<_>>();
            prop_assert!(bytes.contains(&(point.bytes, point.loss)));
        }
    }
}

#[test]
fn bytes_go_where_they_save_most() {
    // The second layer's keys suffer, the first layer nothing.
    let all = sensitivity(vec![
        layer([0.0, 0.001, 0.002], [0.0, 0.001, 0.002]),
        layer([0.0, 0.01, 4.0], [0.0, 0.001, 0.1]),
        layer([0.0, 0.001, 0.02], [0.0, 0.001, 0.02]),
    ]);
    let solution = solve(&all, KvBudget::AverageBits(5.2), &exact()).unwrap();
    let names: Vec<String> = solution.layers.iter().map(|l| l.chosen.name()).collect();
    assert_eq!(names, ["four", "eight/four", "four"]);
    assert_eq!(solution.layers[1].chosen.source, LossSource::Sum);
    let reason = solution.reason(1).unwrap();
    for part in [
        "layer 1: eight/four, 3328 bytes a block, loss 1.100e-1",
        "9 considered, 4 dominated",
        "up eight would take 1024 bytes more and save 9.900e-2, 9.668e-5 a byte",
        "down four would free 1024 bytes and lose 3.990e0 more, 3.896e-3 a byte",
    ] {
        assert!(reason.contains(part), "{reason}\nlacks {part}");
    }
}

#[test]
fn equal_gains_go_to_the_lower_layer() {
    let same = layer([0.0, 0.0, 1.0], [0.0, 0.0, 0.0]);
    let all = sensitivity(vec![same; 3]);
    for options in [exact(), by_slopes()] {
        // Room for the keys of two layers at eight.
        let budget = KvBudget::BytesPerToken((3 * 2304 + 2 * 1024) as f64 / 32.0);
        let solution = solve(&all, budget, &options).unwrap();
        let keys: Vec<&str> = solution
            .layers
            .iter()
            .map(|l| l.chosen.k.as_str())
            .collect();
        assert_eq!(keys, ["eight", "eight", "four"]);
        assert!(solution.exact);
    }
}

#[test]
fn a_budget_below_the_least_says_what_the_least_is() {
    let all = sensitivity(vec![layer([0.0, 0.1, 1.0], [0.0, 0.1, 1.0]); 2]);
    for (budget, least) in [
        (KvBudget::AverageBits(4.0), KvBudget::AverageBits(4.5)),
        (
            KvBudget::BytesPerToken(100.0),
            KvBudget::BytesPerToken(144.0),
        ),
        (
            KvBudget::Sequence {
                tokens: 64,
                bytes: 9000,
            },
            KvBudget::Sequence {
                tokens: 64,
                bytes: 9216,
            },
        ),
    ] {
        let error = solve(&all, budget, &exact()).unwrap_err().to_string();
        assert!(error.contains(&format!("at least {least}")), "{error}");
        let solution = solve(&all, least, &exact()).unwrap();
        assert_eq!(solution.bytes, solution.limit_bytes);
        assert_eq!(solution.average_bits, 4.5);
    }
}

#[test]
fn windows_cost_nothing_a_token_and_what_they_hold_for_a_sequence() {
    let mut all = sensitivity(vec![layer([0.0, 0.5, 1.0], [0.0, 0.5, 1.0]); 2]);
    all.layers[0].window = Some(33);
    let solution = solve(&all, KvBudget::AverageBits(4.5), &exact()).unwrap();
    assert_eq!(solution.layers[0].chosen.name(), "f16");
    assert_eq!(solution.layers[1].chosen.name(), "four");
    assert_eq!(solution.bytes_per_token, 72.0);
    // At 320 tokens the window holds 2 or 3 blocks and the other 10.
    let tight = KvBudget::Sequence {
        tokens: 320,
        bytes: 12 * 2304,
    };
    let solution = solve(&all, tight, &exact()).unwrap();
    assert_eq!(solution.layers[0].chosen.name(), "four");
}

#[test]
fn keeping_fewer_tokens_competes_with_fewer_bits() {
    let mut all = sensitivity(vec![layer([0.0, 0.1, 1.0], [0.0, 0.1, 1.0]); 1]);
    let half = kept_bytes(2 * 2176, 0.5);
    all.layers[0].pairs = vec![
        pair("eight", "eight", 0.5, half, 0.4),
        // Measured together, it is better than the sum says.
        pair("four", "four", 1.0, 2304, 1.5),
    ];
    let solution = solve(&all, KvBudget::AverageBits(4.5), &exact()).unwrap();
    assert_eq!(solution.layers[0].chosen.name(), "eight of 50 %");
    let error = solution.plan().unwrap_err();
    assert_eq!(
        error,
        SolveError::Retention {
            layer: 0,
            kept: 0.5
        }
    );
    let four = &solution.layers[0].considered[8];
    assert_eq!(
        (four.candidate.loss, four.candidate.source),
        (1.5, LossSource::Pair)
    );
    assert_eq!(kept_bytes(100, 1.0), 100);
    assert_eq!(kept_bytes(101, 0.5), 51);
}

#[test]
fn a_solution_is_a_plan_where_its_formats_are_known() {
    let known = |loss| LayerSensitivity {
        elements_per_token: 128,
        window: None,
        keys: vec![side("f32", 8192, 0.0), side("f16", 4096, loss)],
        values: vec![side("f16", 4096, 0.0)],
        pairs: Vec::new(),
    };
    let all = sensitivity(vec![known(1.0), known(2.0)]);
    let solution = solve(&all, KvBudget::AverageBits(20.0), &exact()).unwrap();
    let mut plan = KvPlan::uniform(2, KvFormat::F16);
    plan.layers[1].k = KvFormat::F32;
    assert_eq!(solution.plan(), Ok(plan));
    let unknown = sensitivity(vec![layer([0.0; 3], [0.0; 3])]);
    let solution = solve(&unknown, KvBudget::AverageBits(16.0), &exact()).unwrap();
    let error = solution.plan().unwrap_err().to_string();
    assert!(
        error.contains("layer 0") && error.contains("four"),
        "{error}"
    );
}

#[test]
fn alike_layers_are_decided_together() {
    let like = |scale: f64| layer([0.0, 0.1 * scale, scale], [0.0, 0.1 * scale, scale]);
    let all = sensitivity(vec![like(1.0), like(8.0), like(1.1), like(8.5)]);
    let options = SolveOptions {
        clusters: Some(ClusterRule::default()),
        ..exact()
    };
    let found = clusters(&all, options.clusters.as_ref());
    assert_eq!(found, [[0, 2], [1, 3]]);
    for bits in [4.5, 6.0, 7.0, 8.5, 12.0, 16.0] {
        let together = solve(&all, KvBudget::AverageBits(bits), &options).unwrap();
        check(&together, &all);
        let names = together.formats();
        assert_eq!((&names[0], &names[1]), (&names[2], &names[3]));
        let apart = solve(&all, KvBudget::AverageBits(bits), &exact()).unwrap();
        assert!(apart.loss <= together.loss + 1e-12);
        assert!(
            together
                .reason(0)
                .unwrap()
                .contains("decided with 1 like it")
        );
    }
}

#[test]
fn measurements_that_cannot_be_are_refused_by_name() {
    let good = sensitivity(vec![layer([0.0, 0.1, 1.0], [0.0, 0.1, 1.0])]);
    assert_eq!(good.validate(), Ok(()));
    let refused = |spoil: &dyn Fn(&mut Sensitivity)| {
        let mut bad = good.clone();
        spoil(&mut bad);
        let error = bad.validate().unwrap_err();
        let budget = KvBudget::AverageBits(8.0);
        // By their messages: a number that is none is not equal to itself.
        let solved = solve(&bad, budget, &exact()).unwrap_err();
        assert_eq!(solved.to_string(), error.to_string());
        assert!(front(&bad, KvMeasure::Block, &exact(), 9).is_err());
        error
    };
    assert_eq!(
        refused(&|s| s.version = 2),
        SensitivityError::Version { got: 2 }
    );
    assert_eq!(refused(&|s| s.layers.clear()), SensitivityError::NoLayers);
    let error = refused(&|s| s.layers[0].values.clear());
    assert_eq!(error, SensitivityError::NoCandidates { layer: 0 });
    let message = |spoil: &dyn Fn(&mut Sensitivity)| refused(spoil).to_string();
    for (error, part) in [
        (
            message(&|s| s.layers[0].keys[1].loss = -1.0),
            "loss of keys \"eight\" is -1",
        ),
        (
            message(&|s| s.layers[0].values[2].loss = f64::NAN),
            "loss of values \"four\" is NaN",
        ),
        (
            message(&|s| s.layers[0].keys[0].block_bytes = 0),
            "block_bytes of keys \"f16\" is 0",
        ),
        (
            message(&|s| s.layers[0].elements_per_token = 0),
            "elements_per_token is 0",
        ),
        (message(&|s| s.layers[0].window = Some(0)), "window is 0"),
        (
            message(&|s| s.layers[0].keys[1].format = "f16".to_owned()),
            "keys \"f16\" is listed twice",
        ),
        (
            message(&|s| s.layers[0].pairs = vec![pair("a", "b", 0.5, 1, 0.0); 2]),
            "pair \"a\"/\"b\" is listed twice",
        ),
        (
            message(&|s| s.layers[0].pairs = vec![pair("a", "b", 0.0, 1, 0.0)]),
            "kept of pair \"a\"/\"b\" is 0",
        ),
        (
            message(&|s| {
                s.layers[0].keys = (0..2000).map(|i| side(&i.to_string(), 1, 0.0)).collect()
            }),
            "6000 candidates of layer 0",
        ),
        (
            message(&|s| s.layers = vec![s.layers[0].clone(); 5000]),
            "5000 layers",
        ),
    ] {
        assert!(error.contains(part), "{error} lacks {part}");
    }
    let unknown = serde_json::to_string(&good)
        .unwrap()
        .replacen("{", r#"{"extra":1,"#, 1);
    assert!(serde_json::from_str::<Sensitivity>(&unknown).is_err());
}
