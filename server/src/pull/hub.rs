//! The Hugging Face hub: addresses, what a repository holds, and which of it is the model.

use serde::Deserialize;
use url::Url;

use super::error::PullError;
use super::http::{Client, Request};
use super::reference::is_repo_path;

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// Longest answer of the hub's API that is read, in bytes.
const MAX_LISTING_BYTES: u64 = 16 << 20;

/// The hub as the user's environment configures it: `HF_ENDPOINT` (a mirror) and `HF_TOKEN`.
#[derive(Debug, Clone)]
pub(crate) struct Hub {
    endpoint: Url,
    token: Option<String>,
}

/// What to download from a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// One GGUF file, or all shards of one.
    Gguf(Vec<String>),
    /// The files of a checkpoint folder.
    Checkpoint(Vec<String>),
}

#[derive(Deserialize)]
struct Listing {
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Hub {
    /// Reads the environment.
    pub(super) fn from_env() -> Result<Self, PullError> {
        let var = |name: &str| {
            std::env::var(name)
                .ok()
                .filter(|value| !value.trim().is_empty())
        };
        let spec = var("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        let endpoint = Url::parse(spec.trim())
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .ok_or_else(|| PullError::BadReference {
                spec: spec.clone(),
                why: "HF_ENDPOINT must be an http or https address".to_owned(),
            })?;
        Ok(Self {
            endpoint,
            token: var("HF_TOKEN").map(|token| token.trim().to_owned()),
        })
    }

    /// Address of one file.
    pub(super) fn file(&self, repo: &str, revision: &str, file: &str) -> Request {
        let path = repo
            .split('/')
            .chain(["resolve", revision])
            .chain(file.split('/'));
        self.request(path)
    }

    /// Names of all files of a repository.
    pub(super) fn list(&self, client: &Client, repo: &str) -> Result<Vec<String>, PullError> {
        let request = self.request(["api", "models"].into_iter().chain(repo.split('/')));
        let text = client.get_text(&request, MAX_LISTING_BYTES)?;
        let listing: Listing =
            serde_json::from_str(&text).map_err(|error| PullError::BadAnswer {
                url: request.url.to_string(),
                why: error.to_string(),
            })?;
        Ok(listing
            .siblings
            .into_iter()
            .map(|sibling| sibling.rfilename)
            .filter(|name| is_repo_path(name))
            .collect())
    }

    fn request<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> Request {
        let mut url = self.endpoint.clone();
        // Addresses of http and https always have a path.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        Request {
            url,
            token: self.token.clone(),
        }
    }
}

/// All shards of a split GGUF file (`name-00002-of-00005.gguf`), or the file itself.
pub(crate) fn shards(file: &str) -> Vec<String> {
    match split_shard(file) {
        Some((stem, _, count)) => (1..=count)
            .map(|i| format!("{stem}-{i:05}-of-{count:05}.gguf"))
            .collect(),
        None => vec![file.to_owned()],
    }
}

/// Stem, number and count of a shard's name.
fn split_shard(file: &str) -> Option<(&str, u32, u32)> {
    let rest = file.strip_suffix(".gguf")?;
    let (rest, count) = rest.rsplit_once("-of-")?;
    let (stem, index) = rest.rsplit_once('-')?;
    let number = |s: &str| (s.len() == 5).then(|| s.parse::<u32>().ok()).flatten();
    let (index, count) = (number(index)?, number(count)?);
    (1..=count).contains(&index).then_some((stem, index, count))
}

/// Picks the model of a repository: its only GGUF file, else its only Q4_K_M, else its checkpoint.
pub(crate) fn choose(repo: &str, files: &[String]) -> Result<Choice, PullError> {
    let ggufs: Vec<&String> = files
        .iter()
        .filter(|file| file.ends_with(".gguf") && !file.to_ascii_lowercase().contains("mmproj"))
        .filter(|file| split_shard(file).is_none_or(|(_, index, _)| index == 1))
        .collect();
    let q4: Vec<&&String> = ggufs
        .iter()
        .filter(|file| file.to_ascii_lowercase().contains("q4_k_m"))
        .collect();
    match (&ggufs[..], &q4[..]) {
        ([only], _) => return Ok(Choice::Gguf(shards(only))),
        (_, [only]) => return Ok(Choice::Gguf(shards(only))),
        ([], _) => {}
        ([first, ..], _) => {
            let names: Vec<&str> = ggufs.iter().take(12).map(|name| name.as_str()).collect();
            let more = if ggufs.len() > names.len() {
                ", …"
            } else {
                ""
            };
            let why = format!(
                "{} GGUF files ({}{more}); name one, such as hf:{repo}/{first}",
                ggufs.len(),
                names.join(", ")
            );
            return Err(PullError::NoObviousFile {
                repo: repo.to_owned(),
                why,
            });
        }
    }
    let checkpoint = checkpoint_files(files);
    if checkpoint.is_empty() {
        let why = "neither a GGUF file nor config.json with safetensors".to_owned();
        return Err(PullError::NoObviousFile {
            repo: repo.to_owned(),
            why,
        });
    }
    Ok(Choice::Checkpoint(checkpoint))
}

fn checkpoint_files(files: &[String]) -> Vec<String> {
    const TEXT_FILES: [&str; 7] = [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "model.safetensors.index.json",
    ];
    let has = |name: &str| files.iter().any(|file| file == name);
    // Some repositories carry the same weights twice, under the names of two tools.
    let is_weight = |file: &str| {
        let in_root = !file.contains('/');
        let is_shard = file.starts_with("model-") && file.ends_with(".safetensors");
        in_root
            && if has("model.safetensors.index.json") {
                is_shard
            } else if has("model.safetensors") {
                file == "model.safetensors"
            } else {
                file.ends_with(".safetensors")
            }
    };
    let weights: Vec<&String> = files.iter().filter(|file| is_weight(file)).collect();
    if !has("config.json") || weights.is_empty() {
        return Vec::new();
    }
    let texts = TEXT_FILES
        .iter()
        .filter(|name| has(name))
        .map(|name| (*name).to_owned());
    texts.chain(weights.into_iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[&str]) -> Vec<String> {
        files.iter().map(|file| (*file).to_owned()).collect()
    }

    fn hub(endpoint: &str) -> Hub {
        Hub {
            endpoint: Url::parse(endpoint).expect("url"),
            token: None,
        }
    }

    #[test]
    fn addresses_are_escaped_and_keep_a_mirrors_path() {
        let at = |endpoint: &str| {
            hub(endpoint)
                .file("a/b", "main", "x/y z.gguf")
                .url
                .to_string()
        };
        assert_eq!(
            at("https://h.example"),
            "https://h.example/a/b/resolve/main/x/y%20z.gguf"
        );
        assert_eq!(
            at("http://h.example/m/"),
            "http://h.example/m/a/b/resolve/main/x/y%20z.gguf"
        );
    }

    #[test]
    fn shards_are_completed() {
        assert_eq!(
            shards("q/m-00002-of-00003.gguf"),
            names(&[
                "q/m-00001-of-00003.gguf",
                "q/m-00002-of-00003.gguf",
                "q/m-00003-of-00003.gguf"
            ])
        );
        for single in [
            "m.gguf",
            "m-00004-of-00003.gguf",
            "m-1-of-2.gguf",
            "m-00001-of-00002.bin",
        ] {
            assert_eq!(shards(single), names(&[single]));
        }
    }

    #[test]
    fn the_obvious_file_is_chosen_and_doubt_is_an_error() {
        let choose = |files: &[&str]| choose("a/b", &names(files));
        let gguf = |file: &str| Choice::Gguf(names(&[file]));
        assert_eq!(
            choose(&["README.md", "m.Q8_0.gguf"]).expect("one"),
            gguf("m.Q8_0.gguf")
        );
        let two = choose(&["m-Q8_0.gguf", "m-Q4_K_M.gguf", "mmproj-f16.gguf"]);
        assert_eq!(two.expect("the usual one"), gguf("m-Q4_K_M.gguf"));
        let error = choose(&["m-Q8_0.gguf", "m-Q6_K.gguf"]).expect_err("doubt");
        assert!(error.to_string().contains("hf:a/b/m-Q8_0.gguf"), "{error}");
        choose(&["README.md", "config.json"]).expect_err("no weights");
        choose(&["model.safetensors"]).expect_err("no config");
    }

    #[test]
    fn a_checkpoint_is_taken_once() {
        let files = names(&[
            "config.json",
            "consolidated.safetensors",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "onnx/model.safetensors",
            "tokenizer.json",
        ]);
        let Choice::Checkpoint(chosen) = choose("a/b", &files).expect("checkpoint") else {
            panic!("a checkpoint");
        };
        assert_eq!(
            chosen,
            names(&[
                "config.json",
                "tokenizer.json",
                "model.safetensors.index.json",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
            ])
        );
    }
}
