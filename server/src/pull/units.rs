//! Sizes as people read them.

use std::fmt;

/// Shows a number of bytes in decimal units, as disks and networks are measured.
#[derive(Debug, Clone, Copy)]
pub struct Bytes(
    /// Number of bytes.
    pub u64,
);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
        if self.0 < 1000 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1000.0;
        let mut unit = 0;
        while value >= 999.95 && unit + 1 < UNITS.len() {
            value /= 1000.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn sizes_read_well() {
        let shown: Vec<String> = [0, 999, 1000, 98_362_432, 999_960, u64::MAX]
            .map(|n| Bytes(n).to_string())
            .into();
        assert_eq!(
            shown,
            ["0 B", "999 B", "1.0 kB", "98.4 MB", "1.0 MB", "18.4 EB"]
        );
    }
}
