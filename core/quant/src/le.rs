//! Little-endian fields without alignment, so that a block can be viewed at any address of a
//! mapped file and read the same on every host.

use bytemuck::{Pod, Zeroable};
use half::f16;

/// A little-endian IEEE binary16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct F16Le([u8; 2]);

impl F16Le {
    /// The value, exactly.
    #[inline]
    pub fn get(self) -> f32 {
        f16::from_le_bytes(self.0).to_f32()
    }

    /// Rounds to nearest, ties to even; too large becomes infinite.
    #[inline]
    pub fn new(value: f32) -> Self {
        Self(f16::from_f32(value).to_le_bytes())
    }
}

macro_rules! little_endian {
    ($name:ident, $value:ty, $bytes:literal, $what:literal) => {
        #[doc = concat!("A little-endian ", $what, ".")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// The value.
            #[inline]
            pub fn get(self) -> $value {
                <$value>::from_le_bytes(self.0)
            }

            /// The bytes of a value.
            #[inline]
            pub fn new(value: $value) -> Self {
                Self(value.to_le_bytes())
            }
        }
    };
}

little_endian!(F32Le, f32, 4, "`f32`");
little_endian!(I16Le, i16, 2, "`i16`");
little_endian!(U16Le, u16, 2, "`u16`");
little_endian!(U32Le, u32, 4, "`u32`");
