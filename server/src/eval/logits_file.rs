//! Predictions on disk.
//!
//! ```text
//! "KVANTLP1"   magic
//! u32          vocabulary size
//! u32          tokens of a chunk
//! u32          chunks
//! u32          length of the model's name
//! [u8; 32]     SHA-256 of the token ids, little-endian u32
//! name         UTF-8
//! rows         one for each measured token, in order:
//!                f32 lowest, f32 step, vocabulary size x u16
//! ```
//! All little-endian. A log-probability is `lowest + step * (u - 1)`; `u` of 0 is minus infinity.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use kvant_engine::eval::log_softmax;
use sha2::{Digest, Sha256};

use crate::error::CliError;

const MAGIC: &[u8; 8] = b"KVANTLP1";
/// Largest quantised value.
const TOP: f32 = 65534.0;
/// No model's name is longer.
const MAX_NAME_BYTES: u32 = 4096;

/// What the rows belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    model: String,
    vocab_size: u32,
    chunk_tokens: u32,
    n_chunks: u32,
    tokens_sha256: [u8; 32],
}

impl Header {
    /// Of `tokens`, whole chunks.
    pub(super) fn new(model: &str, vocab_size: usize, chunk_tokens: usize, tokens: &[u32]) -> Self {
        let mut hash = Sha256::new();
        for token in tokens {
            hash.update(token.to_le_bytes());
        }
        let name_end = model.floor_char_boundary(MAX_NAME_BYTES as usize);
        Self {
            model: model[..name_end].to_owned(),
            vocab_size: vocab_size as u32,
            chunk_tokens: chunk_tokens as u32,
            n_chunks: (tokens.len() / chunk_tokens.max(1)) as u32,
            tokens_sha256: hash.finalize().into(),
        }
    }

    pub(super) fn n_chunks(&self) -> usize {
        self.n_chunks as usize
    }

    /// Rows in all: of each chunk the second half but for its last token.
    fn n_rows(&self) -> u64 {
        let per_chunk = u64::from(self.chunk_tokens - 1 - self.chunk_tokens / 2);
        u64::from(self.n_chunks) * per_chunk
    }

    fn row_bytes(&self) -> u64 {
        8 + 2 * u64::from(self.vocab_size)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let numbers = [
            self.vocab_size,
            self.chunk_tokens,
            self.n_chunks,
            self.model.len() as u32,
        ];
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(self.tokens_sha256);
        bytes.extend(self.model.as_bytes());
        bytes
    }

    fn read(input: &mut impl Read) -> io::Result<Self> {
        let damaged = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let mut magic = [0; 8];
        input.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return Err(damaged("not a file of saved logits"));
        }
        let mut number = || {
            let mut bytes = [0; 4];
            input
                .read_exact(&mut bytes)
                .map(|()| u32::from_le_bytes(bytes))
        };
        let (vocab_size, chunk_tokens, n_chunks) = (number()?, number()?, number()?);
        let name_bytes = number()?;
        if name_bytes > MAX_NAME_BYTES || chunk_tokens < 4 {
            return Err(damaged("the header of the saved logits is damaged"));
        }
        let mut tokens_sha256 = [0; 32];
        input.read_exact(&mut tokens_sha256)?;
        let mut name = vec![0; name_bytes as usize];
        input.read_exact(&mut name)?;
        let model = String::from_utf8(name)
            .map_err(|_| damaged("the header of the saved logits is damaged"))?;
        Ok(Self {
            model,
            vocab_size,
            chunk_tokens,
            n_chunks,
            tokens_sha256,
        })
    }
}

/// Writes predictions; the file gets its name when it is whole.
pub(super) struct Writer {
    out: BufWriter<File>,
    path: PathBuf,
    part: PathBuf,
    logprobs: Vec<f32>,
    row: Vec<u8>,
    finished: bool,
}

impl Writer {
    pub(super) fn create(path: &Path, header: &Header) -> Result<Self, CliError> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part).map_err(|source| CliError::file("create", &part, source))?;
        let mut writer = Self {
            out: BufWriter::with_capacity(1 << 20, file),
            path: path.to_owned(),
            part,
            logprobs: Vec::new(),
            row: Vec::new(),
            finished: false,
        };
        let head = header.bytes();
        writer.put(&head)?;
        Ok(writer)
    }

    /// The file while it is written.
    pub(super) fn part(&self) -> PathBuf {
        self.part.clone()
    }

    /// Appends one row of logits.
    pub(super) fn write(&mut self, logits: &[f32]) -> Result<(), CliError> {
        log_softmax(logits, &mut self.logprobs);
        let mut row = std::mem::take(&mut self.row);
        pack(&self.logprobs, &mut row);
        let result = self.put(&row);
        self.row = row;
        result
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.out
            .write_all(bytes)
            .map_err(|source| CliError::file("write", &self.part, source))
    }

    /// Gives the file its name.
    pub(super) fn finish(mut self) -> Result<(), CliError> {
        let named = self
            .out
            .flush()
            .and_then(|()| self.out.get_ref().sync_all())
            .and_then(|()| std::fs::rename(&self.part, &self.path));
        self.finished = named.is_ok();
        named.map_err(|source| CliError::file("finish", &self.path, source))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            // The first error has been reported; a file that is only a part helps nobody.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

/// Reads predictions.
#[derive(Debug)]
pub(super) struct Reader {
    input: BufReader<File>,
    path: PathBuf,
    header: Header,
    row: Vec<u8>,
}

impl Reader {
    /// Opens a file and checks that it is whole.
    pub(super) fn open(path: &Path) -> Result<Self, CliError> {
        let failed = |source| CliError::file("read", path, source);
        let file = File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?.len();
        let mut input = BufReader::with_capacity(1 << 20, file);
        let header = Header::read(&mut input).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => {
                failed(io::Error::new(source.kind(), "it ends inside its header"))
            }
            _ => failed(source),
        })?;
        let wanted = header
            .n_rows()
            .checked_mul(header.row_bytes())
            .and_then(|bytes| bytes.checked_add(header.bytes().len() as u64));
        if wanted != Some(found) {
            return Err(CliError::Failed(format!(
                "{} is {found} bytes long, which is not what its header says; save the logits again",
                path.display()
            )));
        }
        Ok(Self {
            input,
            path: path.to_owned(),
            header,
            row: Vec::new(),
        })
    }

    /// The model that made the predictions.
    pub(super) fn model(&self) -> &str {
        &self.header.model
    }

    /// Refuses predictions that are not of the same tokens.
    pub(super) fn matching(self, wanted: &Header) -> Result<Self, CliError> {
        let found = &self.header;
        let why = if found.vocab_size != wanted.vocab_size {
            format!(
                "of a vocabulary of {}, this model has {}",
                found.vocab_size, wanted.vocab_size
            )
        } else if found.chunk_tokens != wanted.chunk_tokens {
            format!("for --ctx {}", found.chunk_tokens)
        } else if found.n_chunks != wanted.n_chunks {
            format!(
                "of {} chunks, and {} are to be measured; use --chunks",
                found.n_chunks, wanted.n_chunks
            )
        } else if found.tokens_sha256 != wanted.tokens_sha256 {
            "of another text or tokenizer".to_owned()
        } else {
            return Ok(self);
        };
        let path = self.path.display();
        Err(CliError::Failed(format!("the logits in {path} are {why}")))
    }

    /// The next row of log-probabilities, `[vocab_size]`.
    pub(super) fn read(&mut self, logprobs: &mut Vec<f32>) -> Result<(), CliError> {
        self.row.resize(self.header.row_bytes() as usize, 0);
        self.input
            .read_exact(&mut self.row)
            .map_err(|source| CliError::file("read", &self.path, source))?;
        unpack(&self.row, logprobs);
        Ok(())
    }
}

/// One row: 16 bits between the lowest and the highest finite value.
fn pack(logprobs: &[f32], row: &mut Vec<u8>) {
    let finite = || logprobs.iter().copied().filter(|p| p.is_finite());
    let lowest = finite().fold(f32::INFINITY, f32::min).min(0.0);
    let highest = finite().fold(f32::NEG_INFINITY, f32::max).max(lowest);
    let step = (highest - lowest) / TOP;
    row.clear();
    row.extend(lowest.to_le_bytes());
    row.extend(step.to_le_bytes());
    for &p in logprobs {
        let quantised = if !p.is_finite() {
            0
        } else if step > 0.0 {
            ((p - lowest) / step).round().clamp(0.0, TOP) as u16 + 1
        } else {
            1
        };
        row.extend(quantised.to_le_bytes());
    }
}

fn unpack(row: &[u8], logprobs: &mut Vec<f32>) {
    let number = |at: usize| {
        let bytes = row.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(f32::NAN, f32::from_le_bytes)
    };
    let (lowest, step) = (number(0), number(4));
    logprobs.clear();
    logprobs.extend(
        row.get(8..)
            .unwrap_or_default()
            .chunks_exact(2)
            .map(|pair| match u16::from_le_bytes([pair[0], pair[1]]) {
                0 => f32::NEG_INFINITY,
                quantised => lowest + step * f32::from(quantised - 1),
            }),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_row_comes_back(logits in prop::collection::vec(-40.0f32..40.0, 1..300), ruled_out: bool) {
            let mut logits = logits;
            if ruled_out {
                logits.push(f32::NEG_INFINITY);
            }
            let (mut logprobs, mut row, mut back) = (Vec::new(), Vec::new(), Vec::new());
            log_softmax(&logits, &mut logprobs);
            pack(&logprobs, &mut row);
            unpack(&row, &mut back);
            prop_assert_eq!(back.len(), logits.len());
            for (a, b) in logprobs.iter().zip(&back) {
                prop_assert!(a == b || (a - b).abs() < 1.5e-3, "{} {}", a, b);
            }
        }
    }

    fn saved(path: &Path) -> Header {
        let header = Header::new("m", 3, 8, &[1; 16]);
        let mut writer = Writer::create(path, &header).unwrap();
        for row in 0..header.n_rows() {
            writer.write(&[0.0, row as f32, 2.0]).unwrap();
        }
        writer.finish().unwrap();
        header
    }

    #[test]
    fn a_file_comes_back_and_a_wrong_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logits");
        let header = saved(&path);
        assert_eq!(header.n_rows(), 6);
        let mut reader = Reader::open(&path).unwrap().matching(&header).unwrap();
        let mut row = Vec::new();
        for _ in 0..6 {
            reader.read(&mut row).unwrap();
        }
        assert!((row[1] - row[0] - 5.0).abs() < 1e-3);
        let others = [
            Header::new("m", 4, 8, &[1; 16]),
            Header::new("m", 3, 4, &[1; 16]),
            Header::new("m", 3, 8, &[1; 24]),
            Header::new("m", 3, 8, &[2; 16]),
        ];
        for other in others {
            assert!(
                Reader::open(&path).unwrap().matching(&other).is_err(),
                "{other:?}"
            );
        }
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            assert!(Reader::open(&path).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn an_unfinished_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logits");
        drop(Writer::create(&path, &Header::new("m", 3, 8, &[1; 16])).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
