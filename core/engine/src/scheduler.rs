//! First come, first served: which tokens of which sequences make up the next step. A pure function
//! of the sequences' state.

/// What the scheduler needs to know of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// Tokens known: prompt and what was generated.
    pub n_tokens: usize,
    /// Tokens whose keys and values are in blocks.
    pub n_computed: usize,
}

/// Rows of one sequence in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Index of the sequence.
    pub index: usize,
    /// Tokens to compute.
    pub n_rows: usize,
}

/// Shares `max_tokens` among sequences given in order of arrival: those that generate go first, one
/// token each, then prompts, oldest first, the last cut where the budget ends.
pub fn plan(sequences: &[Pending], max_tokens: usize) -> Vec<Share> {
    let mut budget = max_tokens;
    let mut shares = Vec::new();
    let remaining = |s: &Pending| s.n_tokens - s.n_computed;
    let decodes = sequences
        .iter()
        .enumerate()
        .filter(|(_, s)| remaining(s) == 1);
    let prefills = sequences
        .iter()
        .enumerate()
        .filter(|(_, s)| remaining(s) > 1);
    for (index, sequence) in decodes.chain(prefills) {
        let n_rows = remaining(sequence).min(budget);
        if n_rows == 0 {
            break;
        }
        budget -= n_rows;
        shares.push(Share { index, n_rows });
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pending() -> impl Strategy<Value = Pending> {
        (0usize..50, 1usize..60).prop_map(|(n_computed, rest)| Pending {
            n_tokens: n_computed + rest,
            n_computed,
        })
    }

    proptest! {
        #[test]
        fn a_step_fits_and_never_starves_a_decode(
            sequences in prop::collection::vec(pending(), 1..12),
            max_tokens in 1usize..100,
        ) {
            let shares = plan(&sequences, max_tokens);
            let total: usize = shares.iter().map(|s| s.n_rows).sum();
            prop_assert!(total <= max_tokens && total > 0);
            let all: usize = sequences.iter().map(|s| s.n_tokens - s.n_computed).sum();
            prop_assert!(total == all.min(max_tokens), "the budget is used up while there is work");
            let decodes = sequences.iter().filter(|s| s.n_tokens - s.n_computed == 1).count();
            let served = shares.iter().filter(|s| sequences[s.index].n_tokens - sequences[s.index].n_computed == 1);
            prop_assert_eq!(served.count(), decodes.min(max_tokens));
            let mut seen: Vec<usize> = shares.iter().map(|s| s.index).collect();
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), shares.len(), "a sequence has one share");
        }
    }

    #[test]
    fn prompts_are_served_in_order() {
        let long = Pending {
            n_tokens: 100,
            n_computed: 0,
        };
        let decode = Pending {
            n_tokens: 9,
            n_computed: 8,
        };
        let shares = plan(&[long, long, decode], 64);
        assert_eq!(
            shares,
            [
                Share {
                    index: 2,
                    n_rows: 1
                },
                Share {
                    index: 0,
                    n_rows: 63
                }
            ]
        );
    }
}
