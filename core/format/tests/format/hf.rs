//! Hugging Face folders: one weight file or several, and what can be wrong with them.

use std::path::Path;

use kvant_format::{Checkpoint, HfError, HfFolder, block_on};
use kvant_quant::WeightFormat;
use serde_json::{Value, json};

use crate::common::{Tensor, read_all};

/// A safetensors file of these tensors.
fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for tensor in tensors {
        let begin = data.len();
        data.extend_from_slice(&tensor.bytes);
        let entry = json!({
            "dtype": tensor.format.name(),
            "shape": tensor.shape,
            "data_offsets": [begin, data.len()],
        });
        header.insert(tensor.name.clone(), entry);
    }
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&data);
    file
}

fn tensors() -> Vec<Tensor> {
    vec![
        Tensor::new("model.embed_tokens.weight", &[7, 6], WeightFormat::BF16),
        Tensor::new("model.norm.weight", &[6], WeightFormat::F32),
        Tensor::new("lm_head.weight", &[7, 6], WeightFormat::F16),
    ]
}

/// A folder with its weights in one file.
fn single() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    put("config.json", br#"{"model_type":"llama"}"#);
    put("tokenizer.json", b"{\"model\":{}}");
    put("chat_template.jinja", "{{ caf\u{e9} }}".as_bytes());
    put("generation_config.json", br#"{"eos_token_id":2}"#);
    put("model.safetensors", &safetensors(&tensors()));
    folder
}

/// A folder with its weights in two files, and the index that says so.
fn sharded(index: &Value) -> tempfile::TempDir {
    let folder = single();
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    put(
        "model-00001-of-00002.safetensors",
        &safetensors(&tensors()[..2]),
    );
    put(
        "model-00002-of-00002.safetensors",
        &safetensors(&tensors()[2..]),
    );
    put("model.safetensors.index.json", index.to_string().as_bytes());
    folder
}

fn index() -> Value {
    json!({
        "metadata": {"total_size": 192},
        "weight_map": {
            "model.embed_tokens.weight": "model-00001-of-00002.safetensors",
            "model.norm.weight": "model-00001-of-00002.safetensors",
            "lm_head.weight": "model-00002-of-00002.safetensors",
        }
    })
}

fn check(folder: &HfFolder) {
    assert_eq!(folder.config["model_type"], "llama");
    assert_eq!(folder.chat_template.as_deref(), Some("{{ caf\u{e9} }}"));
    assert_eq!(folder.generation_config, Some(json!({"eos_token_id": 2})));
    assert_eq!(folder.tokenizer_config, None);
    let tokenizer = block_on(folder.tokenizer_json()).unwrap();
    assert_eq!(tokenizer.as_deref(), Some(&b"{\"model\":{}}"[..]));
    assert_eq!(folder.tensors.tensors().len(), 3);
    for tensor in tensors() {
        assert_eq!(read_all(&folder.tensors, &tensor), tensor.bytes);
    }
}

#[test]
fn one_file_and_several_are_the_same_model() {
    check(&HfFolder::open_path(single().path()).unwrap());
    check(&HfFolder::open_path(sharded(&index()).path()).unwrap());
}

#[test]
fn a_checkpoint_is_found_by_folder_or_weight_file() {
    let folder = single();
    for path in [
        folder.path().to_owned(),
        folder.path().join("model.safetensors"),
    ] {
        let checkpoint = Checkpoint::open_path(&path).unwrap();
        assert!(matches!(checkpoint, Checkpoint::HfFolder(_)));
        let norm = checkpoint.tensor("model.norm.weight").unwrap();
        assert_eq!((norm.n_rows(), norm.n_cols()), (1, 6));
        assert!(checkpoint.tensor("model.norm").is_none());
    }
    let gone = folder.path().join("gone");
    let error = Checkpoint::open_path(&gone).unwrap_err().to_string();
    assert_eq!(error, format!("{}: no such file or folder", gone.display()));
}

#[track_caller]
fn refused(folder: &Path, expected: &str) {
    let error = HfFolder::open_path(folder)
        .expect_err("a bad folder")
        .to_string();
    assert!(
        error.contains(expected),
        "{error}\ndoes not say: {expected}"
    );
}

#[test]
fn missing_and_damaged_files_are_named() {
    for (file, says) in [
        (
            "config.json",
            "config.json is missing; a model folder has one",
        ),
        (
            "model.safetensors",
            "model.safetensors is missing; weights are read from safetensors",
        ),
    ] {
        let folder = single();
        std::fs::remove_file(folder.path().join(file)).unwrap();
        refused(folder.path(), says);
    }
    for (file, bytes, says) in [
        ("config.json", &b"{"[..], "config.json: EOF"),
        (
            "config.json",
            b"\xff",
            "config.json is not UTF-8 after 0 bytes",
        ),
        (
            "chat_template.jinja",
            b"ab\xff",
            "chat_template.jinja is not UTF-8 after 2 bytes",
        ),
        (
            "model.safetensors",
            b"\x07",
            "model.safetensors: the file is 7 bytes short",
        ),
    ] {
        let folder = single();
        std::fs::write(folder.path().join(file), bytes).unwrap();
        refused(folder.path(), says);
    }
    let folder = single();
    let long = vec![b' '; (8 << 20) + 1];
    std::fs::write(folder.path().join("config.json"), long).unwrap();
    refused(
        folder.path(),
        "config.json is 8388609 bytes long; at most 8388608",
    );
}

#[test]
fn an_index_is_checked_against_the_files() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut index = index();
        change(&mut index);
        sharded(&index)
    };
    let map = "/weight_map";
    let set = |name: &'static str, file: &'static str| {
        move |index: &mut Value| index.pointer_mut(map).unwrap()[name] = file.into()
    };
    let gone = with(&set("lm_head.weight", "model-00003-of-00003.safetensors"));
    refused(
        gone.path(),
        "model-00003-of-00003.safetensors is missing, although",
    );
    let elsewhere = with(&set("lm_head.weight", "model-00001-of-00002.safetensors"));
    refused(
        elsewhere.path(),
        "tensor lm_head.weight should be in model-00001-of-00002.safetensors, but is not",
    );
    let unknown = with(&set("extra", "model-00001-of-00002.safetensors"));
    refused(unknown.path(), "tensor extra should be in");
    for name in [
        "../x.safetensors",
        "/etc/passwd",
        "a\\b",
        "",
        ".hidden",
        "C:x",
    ] {
        let outside = with(&|index| index.pointer_mut(map).unwrap()["extra"] = name.into());
        refused(outside.path(), "is not the name of a file in the folder");
    }
    refused(
        with(&|index| index[&map[1..]] = json!(3)).path(),
        "model.safetensors.index.json: ",
    );
    refused(
        with(&|index| *index = json!({})).path(),
        "missing field `weight_map`",
    );
}

#[test]
fn a_tensor_in_two_files_is_refused() {
    let folder = sharded(&index());
    let twice = folder.path().join("model-00002-of-00002.safetensors");
    std::fs::write(twice, safetensors(&tensors()[1..])).unwrap();
    let error = HfFolder::open_path(folder.path()).unwrap_err();
    assert!(matches!(error, HfError::DuplicateTensor { name } if name == "model.norm.weight"));
}
