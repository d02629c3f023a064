//! `model.safetensors.index.json`: which tensor is in which file.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use super::{HfError, INDEX_FILE, MAX_WEIGHT_FILES};
use crate::store::TensorStore;

/// The most tensors an index may place.
const MAX_PLACES: usize = 1 << 20;

/// The files of a model and what is in them.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// File names, in the order of their first tensor.
    pub(super) files: Vec<String>,
    /// Tensor names with indices into `files`.
    places: Vec<(String, u32)>,
}

#[derive(Deserialize)]
struct Document {
    weight_map: Index,
}

impl Index {
    pub(super) fn parse(text: &str) -> Result<Self, HfError> {
        let document: Document = serde_json::from_str(text).map_err(|error| HfError::Json {
            file: INDEX_FILE,
            error,
        })?;
        let index = document.weight_map;
        match index.files.iter().find(|name| !is_plain(name)) {
            Some(name) => Err(HfError::BadFileName { file: name.clone() }),
            None => Ok(index),
        }
    }

    /// Checks that each tensor is in the file it should be in; `tensors` are of these files.
    pub(super) fn check(&self, tensors: &TensorStore) -> Result<(), HfError> {
        for (tensor, file) in &self.places {
            let found = tensors.tensor(tensor);
            if found.map(|info| info.location.shard) != Some(*file) {
                return Err(HfError::NotInFile {
                    tensor: tensor.clone(),
                    file: self.files[*file as usize].clone(),
                });
            }
        }
        Ok(())
    }
}

/// Whether a name, which comes from outside, cannot lead out of the folder.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', ':', '\0'])
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(IndexVisitor)
    }
}

struct IndexVisitor;

impl<'de> Visitor<'de> for IndexVisitor {
    type Value = Index;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object from tensor names to file names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Index, A::Error> {
        let mut index = Index::default();
        while let Some((tensor, file)) = map.next_entry::<String, String>()? {
            if index.places.len() == MAX_PLACES {
                return Err(A::Error::custom(format_args!(
                    "more than {MAX_PLACES} tensors"
                )));
            }
            // Neighbours are mostly in the same file.
            let at = match index.files.iter().rposition(|known| *known == file) {
                Some(at) => at,
                None if index.files.len() == MAX_WEIGHT_FILES => {
                    return Err(A::Error::custom(format_args!(
                        "more than {MAX_WEIGHT_FILES} files"
                    )));
                }
                None => {
                    index.files.push(file);
                    index.files.len() - 1
                }
            };
            index.places.push((tensor, at as u32));
        }
        Ok(index)
    }
}
