//! The usual chat template of each family, for files that bring none.

use crate::{TextError, Tokenizer};

/// A built-in template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedTemplate {
    /// What users call it.
    pub name: &'static str,
    /// Models that use it.
    pub used_by: &'static str,
    /// The Jinja text.
    pub source: &'static str,
    /// How to tell that a model without a template uses it; `None` if many base models look
    /// the same.
    family: Option<Family>,
}

/// What models of one family have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Family {
    /// Their architectures; empty for any.
    architectures: &'static [&'static str],
    /// Tokens that their vocabulary has.
    tokens: &'static [&'static str],
}

const TEMPLATES: &[NamedTemplate] = &[
    NamedTemplate {
        name: "llama3",
        used_by: "Llama 3, 3.1, 3.2, 3.3",
        source: include_str!("templates/llama3.jinja"),
        family: Some(Family {
            architectures: &[],
            tokens: &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        }),
    },
    NamedTemplate {
        name: "gemma",
        used_by: "Gemma, Gemma 2, Gemma 3",
        source: include_str!("templates/gemma.jinja"),
        family: Some(Family {
            architectures: &["gemma", "gemma2", "gemma3"],
            tokens: &["<start_of_turn>", "<end_of_turn>"],
        }),
    },
    NamedTemplate {
        name: "phi4",
        used_by: "Phi-4",
        source: include_str!("templates/phi4.jinja"),
        family: Some(Family {
            architectures: &["phi3"],
            tokens: &["<|im_start|>", "<|im_sep|>", "<|im_end|>"],
        }),
    },
    NamedTemplate {
        name: "chatml",
        used_by: "Qwen, SmolLM, many fine-tunes",
        source: include_str!("templates/chatml.jinja"),
        family: Some(Family {
            architectures: &[],
            tokens: &["<|im_start|>", "<|im_end|>"],
        }),
    },
    NamedTemplate {
        name: "phi3",
        used_by: "Phi-3, Phi-3.5, Phi-4-mini",
        source: include_str!("templates/phi3.jinja"),
        family: Some(Family {
            architectures: &["phi3"],
            tokens: &["<|user|>", "<|assistant|>", "<|end|>"],
        }),
    },
    NamedTemplate {
        name: "granite",
        used_by: "Granite 3",
        source: include_str!("templates/granite.jinja"),
        family: Some(Family {
            architectures: &[],
            tokens: &["<|start_of_role|>", "<|end_of_role|>"],
        }),
    },
    NamedTemplate {
        name: "mistral",
        used_by: "Mistral, Mixtral, Ministral",
        source: include_str!("templates/mistral.jinja"),
        family: Some(Family {
            architectures: &[],
            tokens: &["[INST]", "[/INST]"],
        }),
    },
    NamedTemplate {
        name: "olmo2",
        used_by: "OLMo 2",
        source: include_str!("templates/olmo2.jinja"),
        family: Some(Family {
            architectures: &["olmo2"],
            tokens: &["<|endoftext|>"],
        }),
    },
    NamedTemplate {
        name: "llama2",
        used_by: "Llama 2 Chat",
        source: include_str!("templates/llama2.jinja"),
        family: None,
    },
    NamedTemplate {
        name: "zephyr",
        used_by: "Zephyr, TinyLlama Chat, StableLM 2 Chat",
        source: include_str!("templates/zephyr.jinja"),
        family: None,
    },
];

/// All built-in templates.
pub fn named_templates() -> &'static [NamedTemplate] {
    TEMPLATES
}

/// The built-in template of this name.
///
/// # Errors
/// If there is none; the error lists the names.
pub fn named_template(name: &str) -> Result<&'static NamedTemplate, TextError> {
    let mut templates = TEMPLATES.iter();
    templates
        .find(|t| t.name == name)
        .ok_or_else(|| TextError::UnknownTemplate {
            name: name.into(),
            known: known_names(),
        })
}

/// The usual template of a model whose file brings none, told from its architecture and
/// vocabulary. Callers show its name.
///
/// # Errors
/// If the family is not known: a guess would give wrong prompts without anyone noticing.
pub fn default_template(
    architecture: &str,
    tokenizer: &Tokenizer,
) -> Result<&'static NamedTemplate, TextError> {
    let fits = |family: Family| {
        (family.architectures.is_empty() || family.architectures.contains(&architecture))
            && family
                .tokens
                .iter()
                .all(|text| tokenizer.token_id(text).is_some())
    };
    TEMPLATES
        .iter()
        .find(|t| t.family.is_some_and(fits))
        .ok_or_else(|| TextError::NoTemplate {
            architecture: architecture.into(),
            known: known_names(),
        })
}

fn known_names() -> String {
    let names: Vec<&str> = TEMPLATES.iter().map(|t| t.name).collect();
    names.join(", ")
}
