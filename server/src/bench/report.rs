//! Results as a table and as JSON.

use std::collections::BTreeMap;

use kvant_cpu::{Level, read_bytes_per_second};
use serde::Serialize;

use super::measure::{Kind, Test};
use crate::generate::rate;
use crate::pull::units::Bytes;
use crate::session::Session;
use crate::terminal::table;

/// Everything measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    model: String,
    architecture: String,
    backend: String,
    weight_bytes: u64,
    kv_bytes: u64,
    activation_bytes: u64,
    load: Vec<Load>,
    /// The most memory the process held while measuring.
    pub(super) peak_rss_bytes: Option<u64>,
    rows: Vec<Row>,
    /// Bytes a second of plain reads, by threads and bytes.
    #[serde(skip)]
    reads: BTreeMap<(usize, u64), Option<f64>>,
}

#[derive(Debug, Serialize)]
struct Load {
    threads: usize,
    seconds: f64,
}

/// One measurement.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    name: String,
    kind: &'static str,
    n_tokens: usize,
    depth: usize,
    batch: usize,
    threads: usize,
    /// Median.
    tokens_per_second: f64,
    slowest_tokens_per_second: f64,
    fastest_tokens_per_second: f64,
    /// Of every run.
    seconds: Vec<f64>,
    /// Bytes that a step must read.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_second: Option<f64>,
    /// What as many threads read of plain memory, as many bytes at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_bytes_per_second: Option<f64>,
    /// Share of those plain reads, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    share_of_bandwidth: Option<f64>,
}

impl Row {
    pub(super) fn new(
        test: Test,
        threads: usize,
        seconds: &[f64],
        step_bytes: Option<u64>,
    ) -> Self {
        let mut sorted = seconds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = median(&sorted);
        let per_second = |seconds: f64| rate(test.total_tokens(), seconds);
        Self {
            name: test.name(),
            kind: match test.kind {
                Kind::Prefill => "prefill",
                Kind::Decode => "decode",
            },
            n_tokens: test.n_tokens,
            depth: test.depth,
            batch: test.batch,
            threads,
            tokens_per_second: per_second(median),
            slowest_tokens_per_second: per_second(sorted.last().copied().unwrap_or(0.0)),
            fastest_tokens_per_second: per_second(sorted.first().copied().unwrap_or(0.0)),
            seconds: seconds.to_vec(),
            step_bytes,
            bytes_per_second: step_bytes.map(|bytes| bytes as f64 * rate(test.n_tokens, median)),
            read_bytes_per_second: None,
            share_of_bandwidth: None,
        }
    }
}

/// The middle of sorted values, the mean of the two in the middle where there is no one.
fn median(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    if n == 0 {
        return f64::NAN;
    }
    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
}

/// Bytes a second that plain reads of `bytes` reach, with the loads the backend uses; `None` where the
/// system has no room to measure it.
fn plain_reads(threads: usize, bytes: u64) -> Option<f64> {
    let level = Level::from_env().unwrap_or_else(|_| Level::detect());
    read_bytes_per_second(level, threads, usize::try_from(bytes).ok()?).ok()
}

impl Report {
    pub(super) fn new(model: &str) -> Self {
        Self {
            model: model.to_owned(),
            architecture: String::new(),
            backend: String::new(),
            weight_bytes: 0,
            kv_bytes: 0,
            activation_bytes: 0,
            load: Vec::new(),
            peak_rss_bytes: None,
            rows: Vec::new(),
            reads: BTreeMap::new(),
        }
    }

    /// Notes what was loaded and how long it took.
    pub(super) fn loaded(&mut self, session: &Session) {
        let caps = session.engine.caps();
        let memory = session.engine.memory();
        self.architecture = session.open.model.spec().architecture.to_owned();
        self.backend = caps.name.clone();
        self.weight_bytes = memory.weight_bytes as u64;
        self.kv_bytes = memory.kv_bytes as u64;
        self.activation_bytes = memory.activation_bytes as u64;
        self.load.push(Load {
            threads: caps.parallelism,
            seconds: session.load_seconds,
        });
    }

    /// Adds a row, with its share of plain reads. Called when the model's memory is free again.
    pub(super) fn add(&mut self, mut row: Row) {
        if let (Some(speed), Some(bytes)) = (row.bytes_per_second, row.step_bytes) {
            let reads = *self
                .reads
                .entry((row.threads, bytes))
                .or_insert_with(|| plain_reads(row.threads, bytes));
            row.read_bytes_per_second = reads;
            row.share_of_bandwidth = reads.map(|reads| speed / reads);
        }
        self.rows.push(row);
    }

    /// The report for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} ({}) on {}: weights {}, KV {}, activations {}",
            self.model,
            self.architecture,
            self.backend,
            Bytes(self.weight_bytes),
            Bytes(self.kv_bytes),
            Bytes(self.activation_bytes)
        );
        if let Some(peak) = self.peak_rss_bytes {
            text.push_str(&format!("; peak RSS {}", Bytes(peak)));
        }
        for load in &self.load {
            text.push_str(&format!(
                "; loaded in {:.2} s on {} threads",
                load.seconds, load.threads
            ));
        }
        text.push_str("\n\n");
        let header = [
            "test",
            "threads",
            "batch",
            "depth",
            "tok/s",
            "slowest",
            "fastest",
            "GB/s",
            "reads GB/s",
            "share",
        ];
        let rows: Vec<Vec<String>> = self.rows.iter().map(Row::cells).collect();
        text.push_str(&table(&header, &rows));
        text
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let speed = |value: f64| format!("{value:.1}");
        let gigabytes = |value: Option<f64>| value.map_or_else(String::new, |v| speed(v / 1e9));
        vec![
            self.name.clone(),
            self.threads.to_string(),
            self.batch.to_string(),
            self.depth.to_string(),
            speed(self.tokens_per_second),
            speed(self.slowest_tokens_per_second),
            speed(self.fastest_tokens_per_second),
            gigabytes(self.bytes_per_second),
            gigabytes(self.read_bytes_per_second),
            self.share_of_bandwidth
                .map_or_else(String::new, |share| format!("{:.0} %", share * 100.0)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[1.0]), 1.0);
        assert_eq!(median(&[1.0, 2.0, 10.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 10.0]), 3.0);
    }

    #[test]
    fn a_batch_counts_all_its_tokens_but_reads_weights_once() {
        let test = Test {
            kind: Kind::Decode,
            n_tokens: 10,
            depth: 0,
            batch: 4,
        };
        let row = Row::new(test, 1, &[2.0], Some(1000));
        assert_eq!(row.tokens_per_second, 20.0);
        assert_eq!(row.bytes_per_second, Some(5000.0));
    }
}
