//! The kernels of each instruction set, as a table of functions.

use super::acts::{self, QuantizeArgs};
use super::blocks::{self, BlockArgs};
use super::floats::{self, FloatArgs};
use super::formats as f;
use super::store::{self, StoreArgs};
use super::tiles::TileKernels;
use crate::arch::Level;
use kvant_quant::WeightFormat;

/// Kernels of one instruction set.
///
/// # Safety
/// Each function needs a machine with the instruction set, and what its argument type asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernels {
    /// Block formats: packed codes times 8-bit activations.
    pub(crate) blocks: unsafe fn(WeightFormat, &BlockArgs),
    /// Float weights times floats.
    pub(crate) floats: unsafe fn(&FloatArgs),
    /// Activations to 8 bits.
    pub(crate) quantize: unsafe fn(&QuantizeArgs),
    /// Sums to outputs.
    pub(crate) store: unsafe fn(&StoreArgs),
}

/// Instantiates every kernel for one vector type, in functions with its target features.
macro_rules! instantiate {
    ($module:ident, $simd:ty $(, #[$feature:meta])?) => {
        mod $module {
            use super::*;

            $(#[$feature])?
            unsafe fn blocks_of<F: f::BlockFormat>(args: &BlockArgs) {
                // SAFETY: the caller keeps the contract of `Kernels`.
                unsafe { blocks::multiply::<$simd, F>(args) }
            }

            unsafe fn blocks(format: WeightFormat, args: &BlockArgs) {
                // SAFETY: the caller keeps the contract of `Kernels`.
                unsafe {
                    match format {
                        WeightFormat::Q4_0 => blocks_of::<f::Q4_0>(args),
                        WeightFormat::Q4_1 => blocks_of::<f::Q4_1>(args),
                        WeightFormat::Q5_0 => blocks_of::<f::Q5_0>(args),
                        WeightFormat::Q5_1 => blocks_of::<f::Q5_1>(args),
                        WeightFormat::Q8_0 => blocks_of::<f::Q8_0>(args),
                        WeightFormat::IQ4_NL => blocks_of::<f::IQ4_NL>(args),
                        WeightFormat::MXFP4 => blocks_of::<f::MXFP4>(args),
                        WeightFormat::Q2_K => blocks_of::<f::Q2_K>(args),
                        WeightFormat::Q3_K => blocks_of::<f::Q3_K>(args),
                        WeightFormat::Q4_K => blocks_of::<f::Q4_K>(args),
                        WeightFormat::Q5_K => blocks_of::<f::Q5_K>(args),
                        WeightFormat::Q6_K => blocks_of::<f::Q6_K>(args),
                        WeightFormat::IQ4_XS => blocks_of::<f::IQ4_XS>(args),
                        other => unreachable!("{other} is not kept as blocks"),
                    }
                }
            }

            $(#[$feature])?
            unsafe fn floats(args: &FloatArgs) {
                // SAFETY: the caller keeps the contract of `Kernels`.
                unsafe { floats::multiply::<$simd>(args) }
            }

            $(#[$feature])?
            unsafe fn quantize(args: &QuantizeArgs) {
                // SAFETY: the caller keeps the contract of `Kernels`.
                unsafe { acts::quantize(args) }
            }

            $(#[$feature])?
            unsafe fn store(args: &StoreArgs) {
                // SAFETY: the caller keeps the contract of `Kernels`.
                unsafe { store::store::<$simd>(args) }
            }

            pub(super) static KERNELS: Kernels = Kernels {
                blocks,
                floats,
                quantize,
                store,
            };
        }
    };
}

instantiate!(scalar, crate::arch::scalar::Scalar);
#[cfg(target_arch = "x86_64")]
instantiate!(
    avx2,
    crate::arch::x86_64::avx2::Avx2,
    #[target_feature(enable = "avx2,fma,f16c")]
);
#[cfg(target_arch = "x86_64")]
instantiate!(
    avx512,
    crate::arch::x86_64::avx512::Avx512,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
);
#[cfg(target_arch = "aarch64")]
instantiate!(
    neon,
    crate::arch::aarch64::neon::Neon,
    #[target_feature(enable = "neon,dotprod")]
);

/// The tile kernels of a level that has tiles.
pub(crate) fn tile_kernels(level: Level) -> Option<&'static TileKernels> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Amx => Some(&super::tiles::amx::KERNELS),
        _ => None,
    }
}

/// The kernels of a level, which the machine must have.
pub(crate) fn kernels(level: Level) -> &'static Kernels {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => &avx2::KERNELS,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni | Level::Amx => &avx512::KERNELS,
        #[cfg(target_arch = "aarch64")]
        Level::NeonDot => &neon::KERNELS,
        _ => &scalar::KERNELS,
    }
}
