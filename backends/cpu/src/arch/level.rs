//! The instruction sets and which of them this machine has.

use std::fmt;
use std::str::FromStr;

/// An instruction set for which kernels exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// Plain Rust: everywhere.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VNNI.
    Avx512Vnni,
    /// AVX-512 as above with BF16, and matrix tiles (AMX BF16) that the system lets us use.
    Amx,
    /// AArch64 with the dot product instructions.
    NeonDot,
}

/// A level that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LevelError {
    /// No level has this name.
    #[error("no instruction set is called {0:?}; there are scalar, avx2, avx512vnni, amx, neondot")]
    Unknown(String),
    /// This machine lacks it.
    #[error("this machine does not have {0}; it has {best}", best = Level::detect())]
    Unavailable(Level),
}

impl Level {
    /// Every level, the best last within an architecture.
    pub const ALL: [Self; 5] = [
        Self::Scalar,
        Self::Avx2,
        Self::Avx512Vnni,
        Self::Amx,
        Self::NeonDot,
    ];

    /// Whether this machine has it. If true once, true as long as the program runs.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => super::x86_64::has_avx2(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => super::x86_64::has_avx512_vnni(),
            #[cfg(target_arch = "x86_64")]
            Self::Amx => super::x86_64::has_amx(),
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// The levels that this machine has.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|level| level.is_available())
    }

    /// The best level that this machine has.
    pub fn detect() -> Self {
        Self::available().last().unwrap_or(Self::Scalar)
    }

    /// The level named by the environment variable `KVANT_CPU_LEVEL`, or the best one.
    ///
    /// # Errors
    /// [`LevelError`] when the variable names no level of this machine.
    pub fn from_env() -> Result<Self, LevelError> {
        let Some(name) = std::env::var_os("KVANT_CPU_LEVEL") else {
            return Ok(Self::detect());
        };
        let level: Self = name.to_string_lossy().parse()?;
        if level.is_available() {
            Ok(level)
        } else {
            Err(LevelError::Unavailable(level))
        }
    }

    /// The name, as `KVANT_CPU_LEVEL` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512Vnni => "avx512vnni",
            Self::Amx => "amx",
            Self::NeonDot => "neondot",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(name: &str) -> Result<Self, LevelError> {
        Self::ALL
            .into_iter()
            .find(|level| level.name() == name)
            .ok_or_else(|| LevelError::Unknown(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for level in Level::ALL {
            assert_eq!(level.name().parse(), Ok(level));
        }
        assert!("sse9".parse::<Level>().is_err());
        assert!(Level::detect().is_available());
    }
}
