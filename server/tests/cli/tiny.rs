//! Tiny models: as they lie in the repository, and damaged on purpose.

use std::path::{Path, PathBuf};

use kvant_format::gguf::Value;
use kvant_format::gguf::write::GgufBuilder;
use kvant_format::{ByteOrder, Checkpoint, block_on};
use kvant_quant::WeightFormat;

/// A GGUF file of a tiny Llama with a byte-level vocabulary, 264 tokens, context 512.
pub(crate) fn llama() -> PathBuf {
    fixture("llama/model.gguf")
}

/// The same as a folder of safetensors.
pub(crate) fn llama_folder() -> PathBuf {
    fixture("llama")
}

fn fixture(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("../tests/fixtures/models").join(name)
}

/// A tensor in memory.
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) format: WeightFormat,
    pub(crate) bytes: Vec<u8>,
}

/// A GGUF file in memory, to be changed and written.
pub(crate) struct Parts {
    pub(crate) metadata: Vec<(String, Value)>,
    pub(crate) tensors: Vec<Tensor>,
}

impl Parts {
    /// The parts of [`llama`].
    pub(crate) fn llama() -> Self {
        let checkpoint = Checkpoint::open_path(&llama()).expect("the fixture opens");
        let Checkpoint::Gguf(gguf) = &checkpoint else {
            panic!("the fixture is GGUF")
        };
        let metadata = gguf.metadata.iter();
        let tensors = checkpoint.tensors().iter().map(|info| Tensor {
            name: info.name.clone(),
            shape: info.shape.clone(),
            format: info.format.known().expect("a known type"),
            bytes: block_on(checkpoint.store().read(info))
                .expect("it reads")
                .into_owned(),
        });
        Self {
            metadata: metadata
                .map(|(key, value)| (key.to_owned(), value.clone()))
                .collect(),
            tensors: tensors.collect(),
        }
    }

    /// Replaces the value of a key.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        let entry = self.metadata.iter_mut().find(|entry| entry.0 == key);
        entry.expect("the key is there").1 = value;
    }

    /// The tensor with this name.
    pub(crate) fn tensor(&mut self, name: &str) -> &mut Tensor {
        let tensor = self.tensors.iter_mut().find(|tensor| tensor.name == name);
        tensor.expect("the tensor is there")
    }

    /// Writes the file into `folder`.
    pub(crate) fn write(&self, folder: &Path) -> String {
        let mut builder = GgufBuilder::new(ByteOrder::Little);
        for (key, value) in &self.metadata {
            builder.metadata(key, value.clone());
        }
        for tensor in &self.tensors {
            builder.tensor(&tensor.name, &tensor.shape, tensor.format);
        }
        let path = folder.join("model.gguf");
        let file = std::fs::File::create(&path).expect("it can be created");
        let mut writer = builder.start(file).expect("the header is possible");
        for tensor in &self.tensors {
            writer.data(&tensor.bytes).expect("the data fit");
        }
        writer.finish().expect("it is whole");
        path.to_str().expect("text").to_owned()
    }
}
