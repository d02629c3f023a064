//! Rotary embeddings as model files describe them, worked out to one divisor a pair.

use crate::config::{Config, Key};
use crate::error::ModelError;
use kvant_device::{RopeScaling, RopeSpec};
use std::f64::consts::TAU;

/// Where `config.json` keeps the rope of one kind of layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RopeKeys {
    /// `rope_parameters` of newer files: the object of this kind of layer, or the object itself.
    pub(crate) parameters: &'static [&'static str],
    /// `rope_theta` of older files.
    pub(crate) theta: Key,
    /// Whether the scaling keys apply.
    pub(crate) scaled: bool,
    /// Base where no key says.
    pub(crate) default_theta: f32,
    /// Context length of training where no key says, in tokens.
    pub(crate) original_context: Option<f64>,
    /// Whether the name `yarn` means LongRoPE (Phi 3).
    pub(crate) yarn_is_long: bool,
}

impl RopeKeys {
    /// One rope for all layers.
    pub(crate) const SINGLE: Self = Self {
        parameters: &["rope_parameters"],
        theta: Key("rope.freq_base", "rope_theta"),
        scaled: true,
        default_theta: 10_000.0,
        original_context: None,
        yarn_is_long: false,
    };
}

fn json_number(config: &Config<'_>, objects: &[&str], name: &str) -> Option<f64> {
    objects
        .iter()
        .find_map(|object| config.json_number(&format!("{object}.{name}")))
}

/// Reads a rope of `rotary_dim` elements.
pub(crate) fn read_rope(
    config: &Config<'_>,
    rotary_dim: usize,
    keys: RopeKeys,
) -> Result<RopeSpec, ModelError> {
    let theta = json_number(config, keys.parameters, "rope_theta")
        .or(config.opt_f64(keys.theta)?)
        .unwrap_or(f64::from(keys.default_theta)) as f32;
    if !(theta.is_finite() && theta > 0.0) {
        return Err(config.bad(keys.theta, theta.to_string(), "it must be above zero"));
    }
    let scaling = match (keys.scaled, config.is_gguf()) {
        (false, _) => RopeScaling::None,
        (true, true) => gguf_scaling(config, rotary_dim, theta)?,
        (true, false) => hf_scaling(config, rotary_dim, theta, keys)?,
    };
    Ok(RopeSpec {
        rotary_dim,
        theta,
        scaling,
    })
}

fn gguf_scaling(
    config: &Config<'_>,
    rotary_dim: usize,
    theta: f32,
) -> Result<RopeScaling, ModelError> {
    let half = rotary_dim / 2;
    let checked = |name: &str, factors: Vec<f32>| -> Result<Vec<f32>, ModelError> {
        check_factors(name, factors, half)
    };
    if let Some(factors) = config.rope_tensor("rope_freqs.weight") {
        return Ok(RopeScaling::Factors {
            factors: checked("rope_freqs.weight", factors)?,
        });
    }
    if let (Some(short), Some(long)) = (
        config.rope_tensor("rope_factors_short.weight"),
        config.rope_tensor("rope_factors_long.weight"),
    ) {
        let attention_factor = config
            .opt_f32(Key("rope.scaling.attn_factor", ""))?
            .unwrap_or(1.0);
        return Ok(RopeScaling::Long {
            short_factors: checked("rope_factors_short.weight", short)?,
            long_factors: checked("rope_factors_long.weight", long)?,
            original_context: config.count(Key("rope.scaling.original_context_length", ""))?,
            attention_factor,
        });
    }
    let kind = Key("rope.scaling.type", "");
    let factor = match config.opt_f32(Key("rope.scaling.factor", ""))? {
        Some(factor) => Some(factor),
        None => config.opt_f32(Key("rope.scale_linear", ""))?,
    };
    let factor = factor.filter(|f| *f != 0.0);
    match config.opt_str(kind)? {
        None | Some("none" | "longrope") if factor.is_none() => Ok(RopeScaling::None),
        None | Some("linear") => {
            Ok(factor.map_or(RopeScaling::None, |factor| RopeScaling::Linear { factor }))
        }
        Some("none" | "longrope") => Ok(RopeScaling::None),
        Some("yarn") => {
            let original = config.count(Key("rope.scaling.original_context_length", ""))?;
            let factor = f64::from(factor.unwrap_or(1.0));
            let beta_fast = config
                .opt_f64(Key("rope.scaling.yarn_beta_fast", ""))?
                .unwrap_or(32.0);
            let beta_slow = config
                .opt_f64(Key("rope.scaling.yarn_beta_slow", ""))?
                .unwrap_or(1.0);
            let attention = config
                .opt_f64(Key("rope.scaling.attn_factor", ""))?
                .unwrap_or(1.0);
            Ok(RopeScaling::Yarn {
                factors: yarn_factors(
                    rotary_dim,
                    theta,
                    factor,
                    original as f64,
                    beta_fast,
                    beta_slow,
                    true,
                ),
                attention_factor: (attention * yarn_magnitude(factor, 1.0)) as f32,
            })
        }
        Some(other) => Err(config.bad(kind, other, "known are none, linear, yarn, longrope")),
    }
}

fn hf_scaling(
    config: &Config<'_>,
    rotary_dim: usize,
    theta: f32,
    keys: RopeKeys,
) -> Result<RopeScaling, ModelError> {
    // Where a file has both spellings, the older wins.
    let objects: Vec<&str> = ["rope_scaling"]
        .into_iter()
        .chain(keys.parameters.iter().copied())
        .collect();
    let number = |name: &str| json_number(config, &objects, name);
    let missing = |name: &str| ModelError::MissingKey {
        key: format!("{}.{name}", objects[1]),
    };
    let need = |name: &str| number(name).ok_or_else(|| missing(name));
    let kind = objects
        .iter()
        .flat_map(|object| [format!("{object}.rope_type"), format!("{object}.type")])
        .find_map(|path| config.json_str(&path));
    let original_key = "original_max_position_embeddings";
    let original = || {
        let max_context = config.json_number("max_position_embeddings");
        let named = config
            .json_number(original_key)
            .or_else(|| number(original_key));
        named
            .or(keys.original_context)
            .or(max_context)
            .ok_or_else(|| missing(original_key))
    };
    match kind.as_deref() {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear {
            factor: need("factor")? as f32,
        }),
        Some("longrope" | "su") => long_scaling(config, rotary_dim, &objects, original()?),
        Some("yarn") if keys.yarn_is_long => {
            long_scaling(config, rotary_dim, &objects, original()?)
        }
        Some("llama3") => {
            let (factor, low, high) = (
                need("factor")?,
                need("low_freq_factor")?,
                need("high_freq_factor")?,
            );
            let factors = llama3_factors(rotary_dim, theta, factor, low, high, original()?);
            Ok(RopeScaling::Factors { factors })
        }
        Some("yarn") => {
            let factor = need("factor")?;
            let (fast, slow) = (
                number("beta_fast").unwrap_or(32.0),
                number("beta_slow").unwrap_or(1.0),
            );
            let attention = number("attention_factor").unwrap_or_else(|| {
                match (number("mscale"), number("mscale_all_dim")) {
                    (Some(m), Some(all)) if m != 0.0 && all != 0.0 => {
                        yarn_magnitude(factor, m) / yarn_magnitude(factor, all)
                    }
                    _ => yarn_magnitude(factor, 1.0),
                }
            });
            let truncate = objects
                .iter()
                .all(|o| config.json_bool(&format!("{o}.truncate")).unwrap_or(true));
            Ok(RopeScaling::Yarn {
                factors: yarn_factors(rotary_dim, theta, factor, original()?, fast, slow, truncate),
                attention_factor: attention as f32,
            })
        }
        Some(other) => Err(ModelError::BadValue {
            key: format!("{}.rope_type", objects[1]),
            found: other.to_owned(),
            wanted: "known are default, linear, llama3, yarn, longrope".to_owned(),
        }),
    }
}

fn long_scaling(
    config: &Config<'_>,
    rotary_dim: usize,
    objects: &[&str],
    original: f64,
) -> Result<RopeScaling, ModelError> {
    let number = |name: &str| json_number(config, objects, name);
    let list = |name: &str| {
        let factors = objects
            .iter()
            .find_map(|o| config.json_numbers(&format!("{o}.{name}")));
        let factors = factors.ok_or_else(|| ModelError::MissingKey {
            key: format!("{}.{name}", objects[0]),
        })?;
        check_factors(name, factors, rotary_dim / 2)
    };
    let factor = number("factor")
        .or_else(|| {
            config
                .json_number("max_position_embeddings")
                .map(|max| max / original)
        })
        .unwrap_or(1.0);
    let attention = number("attention_factor").unwrap_or_else(|| match factor <= 1.0 {
        true => 1.0,
        false => (1.0 + factor.ln() / original.ln()).sqrt(),
    });
    Ok(RopeScaling::Long {
        short_factors: list("short_factor")?,
        long_factors: list("long_factor")?,
        original_context: original as usize,
        attention_factor: attention as f32,
    })
}

fn check_factors(name: &str, factors: Vec<f32>, half: usize) -> Result<Vec<f32>, ModelError> {
    let found = || match factors.iter().find(|f| !(f.is_finite() && **f > 0.0)) {
        Some(bad) => format!("a list with {bad}"),
        None => format!("a list of {}", factors.len()),
    };
    if factors.len() != half || factors.iter().any(|f| !(f.is_finite() && *f > 0.0)) {
        let wanted = format!("it needs {half} values above zero");
        return Err(ModelError::BadValue {
            key: name.to_owned(),
            found: found(),
            wanted,
        });
    }
    Ok(factors)
}

/// Llama 3.1's rule: long waves are stretched by `factor`, short ones are left, between `low` and
/// `high` waves a context the two are blended.
fn llama3_factors(
    rotary_dim: usize,
    theta: f32,
    factor: f64,
    low: f64,
    high: f64,
    original: f64,
) -> Vec<f32> {
    (0..rotary_dim / 2)
        .map(|j| {
            let frequency = f64::from(theta).powf(-2.0 * j as f64 / rotary_dim as f64);
            let waves = original * frequency / TAU;
            let scaled = if waves > high {
                frequency
            } else if waves < low {
                frequency / factor
            } else {
                let smooth = (waves - low) / (high - low);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            };
            (frequency / scaled) as f32
        })
        .collect()
}

/// YaRN's blend of stretched and original frequencies (Peng et al. 2023, section 3.2).
fn yarn_factors(
    rotary_dim: usize,
    theta: f32,
    factor: f64,
    original: f64,
    beta_fast: f64,
    beta_slow: f64,
    truncate: bool,
) -> Vec<f32> {
    let dim = rotary_dim as f64;
    let correction =
        |rotations: f64| dim * (original / (rotations * TAU)).ln() / (2.0 * f64::from(theta).ln());
    let (mut low, mut high) = (correction(beta_fast), correction(beta_slow));
    if truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    let (low, mut high) = (low.max(0.0), high.min(dim - 1.0));
    if high <= low {
        high = low + 0.001;
    }
    (0..rotary_dim / 2)
        .map(|j| {
            let ramp = ((j as f64 - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 / (ramp / factor + (1.0 - ramp))) as f32
        })
        .collect()
}

/// YaRN's factor on cosine and sine.
fn yarn_magnitude(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * mscale * factor.ln() + 1.0
    }
}
