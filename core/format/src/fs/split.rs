//! Finding the files of a split model by the name of one of them.

use std::path::{Path, PathBuf};

use super::MapSource;
use crate::gguf::{Gguf, GgufError, MAX_PARTS};

impl Gguf {
    /// Opens the model at `path`, mapped into memory. When the name ends in `-NNNNN-of-NNNNN.gguf`,
    /// the other parts are looked for beside it.
    ///
    /// # Errors
    /// [`GgufError`] as [`Gguf::open_parts`], and when a file cannot be opened.
    pub fn open_path(path: &Path) -> Result<Self, GgufError> {
        let mut parts = Vec::new();
        match part_paths(path) {
            None => parts.push(MapSource::open(path)?.shared()),
            Some(paths) => {
                let count = paths.len() as u32;
                for (index, path) in paths.iter().enumerate() {
                    if !path.exists() {
                        return Err(GgufError::MissingPart {
                            part: index as u32 + 1,
                            count,
                            path: path.display().to_string(),
                        });
                    }
                    parts.push(MapSource::open(path)?.shared());
                }
            }
        }
        crate::block_on(Self::open_parts(parts))
    }
}

/// The paths of all parts of a split model, in order; `None` when `path` is not named as a part.
fn part_paths(path: &Path) -> Option<Vec<PathBuf>> {
    let name = path.file_name()?.to_str()?;
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let number = |digits: &str| {
        let five = digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
        five.then(|| digits.parse::<u64>().ok()).flatten()
    };
    let (part, count) = (number(part)?, number(count)?);
    if part == 0 || part > count || count > MAX_PARTS {
        return None;
    }
    Some(
        (1..=count)
            .map(|part| path.with_file_name(format!("{stem}-{part:05}-of-{count:05}.gguf")))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_names() {
        let paths = part_paths(Path::new("/m/big-q4-00002-of-00003.gguf")).unwrap();
        assert_eq!(paths[0], Path::new("/m/big-q4-00001-of-00003.gguf"));
        assert_eq!(paths[2], Path::new("/m/big-q4-00003-of-00003.gguf"));
        assert_eq!(paths.len(), 3);
        for other in [
            "model.gguf",
            "a-of-b.gguf",
            "m-1-of-3.gguf",
            "m-00004-of-00003.gguf",
            "m-00000-of-00003.gguf",
            "m-0000x-of-00003.gguf",
            "m-00001-of-00003.bin",
        ] {
            assert_eq!(part_paths(Path::new(other)), None, "{other}");
        }
    }
}
