//! Plans in words: `f16`, `int8/int4`, `0-1:f16,2-27:k8v4,28-29:f16`.

use super::error::PlanTextError;
use crate::KvPlan;
use kvant_quant::{KvFormat, KvFormats};
use std::fmt;
use std::str::FromStr;

/// A plan in words: one format for all layers, or pieces in the order of the layers.
///
/// ```text
/// plan   = format | piece { "," piece }
/// piece  = layers ":" format
/// layers = number [ "-" number ]        both counted, from 0
/// format = the name of a format, of a pair KEYS/VALUES, or whatever the caller knows
/// ```
///
/// White space around pieces, layers and formats does not matter. Printed, it reads back the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanText<F = KvFormats> {
    /// The same for all layers.
    All(F),
    /// Ascending, none overlapping; whether they cover a model shows with the model.
    Pieces(Vec<PlanPiece<F>>),
}

/// Layers next to each other that have one format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanPiece<F = KvFormats> {
    /// First layer.
    pub first: usize,
    /// Last layer, this one included.
    pub last: usize,
    /// Their format.
    pub formats: F,
}

impl<F> PlanText<F> {
    /// Reads a plan. `named` gives the formats of a name, or says which name is unknown and what
    /// would be known.
    ///
    /// # Errors
    /// The first piece that is wrong, by name.
    pub fn parse<E: fmt::Display>(
        text: &str,
        named: impl Fn(&str) -> Result<F, E>,
    ) -> Result<Self, PlanTextError> {
        let formats = |piece: &str, name: &str| {
            named(name).map_err(|problem| PlanTextError::UnknownFormat {
                piece: piece.to_owned(),
                problem: problem.to_string(),
            })
        };
        let empty = || PlanTextError::Empty {
            text: text.to_owned(),
        };
        if !text.contains([',', ':']) {
            let name = text.trim();
            if name.is_empty() {
                return Err(empty());
            }
            return Ok(Self::All(formats(name, name)?));
        }
        let mut pieces: Vec<PlanPiece<F>> = Vec::new();
        for piece in text.split(',').map(str::trim) {
            if piece.is_empty() {
                return Err(empty());
            }
            let Some((range, name)) = piece.split_once(':') else {
                return Err(PlanTextError::NoLayers {
                    piece: piece.to_owned(),
                });
            };
            let (range, name) = (range.trim(), name.trim());
            let (first, last) = read_range(range, piece)?;
            if name.is_empty() {
                return Err(empty());
            }
            let formats = formats(piece, name)?;
            if let Some(before) = pieces.last()
                && first <= before.last
            {
                return Err(clash(piece, first, last, &pieces));
            }
            pieces.push(PlanPiece {
                first,
                last,
                formats,
            });
        }
        Ok(Self::Pieces(pieces))
    }

    /// The formats of each layer of a model.
    ///
    /// # Errors
    /// A piece beyond the last layer, or layers in no piece.
    pub fn layers(&self, n_layers: usize) -> Result<Vec<F>, PlanTextError>
    where
        F: Clone,
    {
        let pieces = match self {
            Self::All(formats) => return Ok(vec![formats.clone(); n_layers]),
            Self::Pieces(pieces) => pieces,
        };
        if let Some(piece) = pieces.iter().find(|piece| piece.last >= n_layers) {
            return Err(PlanTextError::OutOfRange {
                piece: piece.range(),
                n_layers,
            });
        }
        let mut out = Vec::with_capacity(n_layers);
        for piece in pieces {
            if piece.first > out.len() {
                return Err(PlanTextError::Missing {
                    first: out.len(),
                    last: piece.first - 1,
                });
            }
            // Pieces made by hand may overlap; the last one counts.
            out.truncate(piece.first);
            out.resize(piece.last + 1, piece.formats.clone());
        }
        if out.len() < n_layers {
            return Err(PlanTextError::Missing {
                first: out.len(),
                last: n_layers - 1,
            });
        }
        Ok(out)
    }

    /// The shortest text of a list of layers: one format where all are the same, else runs.
    pub fn of_layers(layers: &[F]) -> Self
    where
        F: Clone + PartialEq,
    {
        let mut pieces = Vec::new();
        let mut first = 0;
        for run in layers.chunk_by(|a, b| a == b) {
            pieces.push(PlanPiece {
                first,
                last: first + run.len() - 1,
                formats: run[0].clone(),
            });
            first += run.len();
        }
        match &pieces[..] {
            [only] => Self::All(only.formats.clone()),
            _ => Self::Pieces(pieces),
        }
    }
}

impl PlanText {
    /// The plan for a model of `n_layers` layers.
    ///
    /// # Errors
    /// As [`PlanText::layers`].
    pub fn plan(&self, n_layers: usize) -> Result<KvPlan, PlanTextError> {
        let layers = self.layers(n_layers)?;
        let mut plan = KvPlan::uniform(n_layers, KvFormat::F16);
        for (to, KvFormats { k, v }) in plan.layers.iter_mut().zip(layers) {
            to.k = k;
            to.v = v;
        }
        Ok(plan)
    }

    /// A plan's formats in words. Which blocks stay open is not part of them.
    pub fn of_plan(plan: &KvPlan) -> Self {
        let layers: Vec<KvFormats> = plan.layers.iter().map(|layer| layer.formats()).collect();
        Self::of_layers(&layers)
    }
}

impl FromStr for PlanText {
    type Err = PlanTextError;

    /// Reads a plan of the formats and pairs that this program has.
    fn from_str(text: &str) -> Result<Self, PlanTextError> {
        Self::parse(text, str::parse::<KvFormats>)
    }
}

impl<F: fmt::Display> fmt::Display for PlanText<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(formats) => write!(f, "{formats}"),
            Self::Pieces(pieces) => {
                for (i, piece) in pieces.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{}:{}", piece.range(), piece.formats)?;
                }
                Ok(())
            }
        }
    }
}

impl<F> PlanPiece<F> {
    /// `3`, or `3-5`.
    fn range(&self) -> String {
        range(self.first, self.last)
    }
}

fn range(first: usize, last: usize) -> String {
    if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    }
}

fn read_range(range: &str, piece: &str) -> Result<(usize, usize), PlanTextError> {
    let number = |text: &str| {
        let text = text.trim();
        // `parse` would take a sign.
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<usize>().ok()).flatten()
    };
    let ends = match range.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)),
        None => number(range).map(|only| (only, only)),
    };
    // The largest number is no layer: its count would not be one.
    let Some((first, last)) = ends.filter(|&(first, last)| first.max(last) < usize::MAX) else {
        return Err(PlanTextError::BadRange {
            range: range.to_owned(),
            piece: piece.to_owned(),
        });
    };
    if last < first {
        return Err(PlanTextError::Descending {
            piece: piece.to_owned(),
            first,
            last,
        });
    }
    Ok((first, last))
}

/// What is wrong with a piece that does not begin after all those before it.
fn clash<F>(piece: &str, first: usize, last: usize, before: &[PlanPiece<F>]) -> PlanTextError {
    let shared = |other: &&PlanPiece<F>| other.first <= last && first <= other.last;
    if let Some(other) = before.iter().find(shared) {
        return PlanTextError::Overlap {
            piece: piece.to_owned(),
            other: other.range(),
            layer: first.max(other.first),
        };
    }
    let later = before.iter().find(|other| other.first > last);
    PlanTextError::OutOfOrder {
        piece: piece.to_owned(),
        other: later.map_or_else(String::new, PlanPiece::range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Formats `a` to `z`, and a preset.
    fn named(name: &str) -> Result<String, String> {
        let letter = name.len() == 1 && name.as_bytes()[0].is_ascii_lowercase();
        match name {
            "preset" => Ok("p".to_owned()),
            _ if letter => Ok(name.to_owned()),
            _ => Err(format!("format {name:?} is unknown; known are a, b")),
        }
    }

    fn parse(text: &str) -> Result<PlanText<String>, PlanTextError> {
        PlanText::parse(text, named)
    }

    fn layers(text: &str, n_layers: usize) -> Result<String, PlanTextError> {
        Ok(parse(text)?.layers(n_layers)?.concat())
    }

    #[test]
    fn pieces_become_layers() {
        assert_eq!(layers("a", 3), Ok("aaa".to_owned()));
        assert_eq!(layers(" preset ", 2), Ok("pp".to_owned()));
        assert_eq!(layers("0-1:a,2:preset,3-5:b", 6), Ok("aapbbb".to_owned()));
        assert_eq!(layers(" 0 - 1 : a , 2 : b ", 3), Ok("aab".to_owned()));
        assert_eq!(layers("a", 0), Ok(String::new()));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_work() {
        let refused = [
            ("", "empty piece"),
            ("  ", "empty piece"),
            ("0:a,,1:b", "empty piece"),
            ("0:a,", "empty piece"),
            ("0:", "empty piece"),
            ("a,b", r#""a" names no layers; write FIRST-LAST:FORMAT"#),
            ("0:a,b", r#""b" names no layers"#),
            (":a", r#""" in ":a" is no range"#),
            (
                "x:a",
                r#""x" in "x:a" is no range of layers; write 3 or 2-27"#,
            ),
            ("0-:a", r#""0-" in "0-:a" is no range"#),
            ("-3:a", r#""-3" in "-3:a" is no range"#),
            ("+1:a", r#""+1" in "+1:a" is no range"#),
            ("0-1-2:a", r#""0-1-2" in"#),
            ("99999999999999999999:a", "is no range"),
            ("18446744073709551615:a", "is no range"),
            ("5-3:a", r#""5-3:a" descends; write 3-5"#),
            (
                "0-5:f17",
                r#""0-5:f17": format "f17" is unknown; known are a, b"#,
            ),
            ("f17", r#""f17": format "f17" is unknown"#),
            ("0:a:b", r#"format "a:b" is unknown"#),
            (
                "0-3:a,3-5:b",
                r#""3-5:b" overlaps "0-3": layer 3 would have two"#,
            ),
            ("0-3:a,4:b,1:a", r#""1:a" overlaps "0-3": layer 1"#),
            ("0:a,4-5:b,2-4:a", r#""2-4:a" overlaps "4-5": layer 4"#),
            (
                "2-3:a,0-1:b",
                r#""0-1:b" comes after "2-3"; write the pieces in the order"#,
            ),
            ("0:a,4:b,2:a", r#""2:a" comes after "4""#),
            (
                "0-6:a",
                r#""0-6" is out of range: the model has 6 layers, 0-5"#,
            ),
            ("0-4:a", "layers 5-5 are missing; add 5-5:FORMAT"),
            ("0:a,3-5:b", "layers 1-2 are missing"),
            ("2-5:b", "layers 0-1 are missing"),
        ];
        for (text, message) in refused {
            let error = layers(text, 6).unwrap_err().to_string();
            assert!(error.contains(message), "{text:?}: {error}");
        }
        assert!(layers("0:a", 0).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn formats_of_this_program_are_read_by_default() {
        let text: PlanText = "0-1:f32,2-4:f16/f32".parse().unwrap();
        let plan = text.plan(5).unwrap();
        assert_eq!(plan.layers[1].k, KvFormat::F32);
        assert_eq!(
            (plan.layers[2].k, plan.layers[4].v),
            (KvFormat::F16, KvFormat::F32)
        );
        assert_eq!(PlanText::of_plan(&plan), text);
        let error = "0:f17".parse::<PlanText>().unwrap_err().to_string();
        assert!(error.contains("f17") && error.contains("f16"), "{error}");
        let one: PlanText = "f16".parse().unwrap();
        assert_eq!(one.plan(3).unwrap(), KvPlan::uniform(3, KvFormat::F16));
    }

    proptest! {
        #[test]
        fn layers_go_round(names in prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..30)) {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            let text = PlanText::of_layers(&names);
            let read = parse(&text.to_string()).unwrap();
            prop_assert_eq!(&read, &text);
            prop_assert_eq!(read.layers(names.len()).unwrap(), names);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-c:, -]{0,24}", n_layers in 0usize..12) {
            if let Ok(read) = parse(&text) {
                let again = parse(&read.to_string());
                prop_assert_eq!(again.as_ref(), Ok(&read));
                if let Ok(layers) = read.layers(n_layers) {
                    prop_assert_eq!(layers.len(), n_layers);
                }
            }
        }
    }
}
