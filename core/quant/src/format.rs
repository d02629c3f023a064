//! The tensor types that a model file may hold, and the size of their blocks.

/// How many elements a block holds and how many bytes it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockLayout {
    /// Elements a block.
    pub elements: usize,
    /// Bytes a block.
    pub bytes: usize,
}

/// A weight's element format: the GGML tensor types, by their names in files.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightFormat {
    /// GGML type 0: 1 element in 4 bytes.
    F32,
    /// GGML type 1: 1 element in 2 bytes.
    F16,
    /// GGML type 2: 32 elements in 18 bytes.
    Q4_0,
    /// GGML type 3: 32 elements in 20 bytes.
    Q4_1,
    /// GGML type 6: 32 elements in 22 bytes.
    Q5_0,
    /// GGML type 7: 32 elements in 24 bytes.
    Q5_1,
    /// GGML type 8: 32 elements in 34 bytes.
    Q8_0,
    /// GGML type 9: 32 elements in 36 bytes.
    Q8_1,
    /// GGML type 10: 256 elements in 84 bytes.
    Q2_K,
    /// GGML type 11: 256 elements in 110 bytes.
    Q3_K,
    /// GGML type 12: 256 elements in 144 bytes.
    Q4_K,
    /// GGML type 13: 256 elements in 176 bytes.
    Q5_K,
    /// GGML type 14: 256 elements in 210 bytes.
    Q6_K,
    /// GGML type 15: 256 elements in 292 bytes.
    Q8_K,
    /// GGML type 16: 256 elements in 66 bytes.
    IQ2_XXS,
    /// GGML type 17: 256 elements in 74 bytes.
    IQ2_XS,
    /// GGML type 18: 256 elements in 98 bytes.
    IQ3_XXS,
    /// GGML type 19: 256 elements in 50 bytes.
    IQ1_S,
    /// GGML type 20: 32 elements in 18 bytes.
    IQ4_NL,
    /// GGML type 21: 256 elements in 110 bytes.
    IQ3_S,
    /// GGML type 22: 256 elements in 82 bytes.
    IQ2_S,
    /// GGML type 23: 256 elements in 136 bytes.
    IQ4_XS,
    /// GGML type 24: 1 element in 1 byte.
    I8,
    /// GGML type 25: 1 element in 2 bytes.
    I16,
    /// GGML type 26: 1 element in 4 bytes.
    I32,
    /// GGML type 27: 1 element in 8 bytes.
    I64,
    /// GGML type 28: 1 element in 8 bytes.
    F64,
    /// GGML type 29: 256 elements in 56 bytes.
    IQ1_M,
    /// GGML type 30: 1 element in 2 bytes.
    BF16,
    /// GGML type 34: 256 elements in 54 bytes.
    TQ1_0,
    /// GGML type 35: 256 elements in 66 bytes.
    TQ2_0,
    /// GGML type 39: 32 elements in 17 bytes.
    MXFP4,
    /// GGML type 40: 64 elements in 36 bytes.
    NVFP4,
    /// GGML type 41: 128 elements in 18 bytes.
    Q1_0,
    /// GGML type 42: 64 elements in 18 bytes.
    Q2_0,
}

impl WeightFormat {
    /// Every format, in the order of GGML type ids.
    pub const ALL: &'static [Self] = &[
        Self::F32,
        Self::F16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q8_1,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::Q8_K,
        Self::IQ2_XXS,
        Self::IQ2_XS,
        Self::IQ3_XXS,
        Self::IQ1_S,
        Self::IQ4_NL,
        Self::IQ3_S,
        Self::IQ2_S,
        Self::IQ4_XS,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F64,
        Self::IQ1_M,
        Self::BF16,
        Self::TQ1_0,
        Self::TQ2_0,
        Self::MXFP4,
        Self::NVFP4,
        Self::Q1_0,
        Self::Q2_0,
    ];

    /// The format with this GGML type id; `None` for retired and unknown ids.
    pub fn from_ggml_id(id: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|f| f.ggml_id() == id)
    }

    /// The GGML type id.
    pub const fn ggml_id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q8_1 => 9,
            Self::Q2_K => 10,
            Self::Q3_K => 11,
            Self::Q4_K => 12,
            Self::Q5_K => 13,
            Self::Q6_K => 14,
            Self::Q8_K => 15,
            Self::IQ2_XXS => 16,
            Self::IQ2_XS => 17,
            Self::IQ3_XXS => 18,
            Self::IQ1_S => 19,
            Self::IQ4_NL => 20,
            Self::IQ3_S => 21,
            Self::IQ2_S => 22,
            Self::IQ4_XS => 23,
            Self::I8 => 24,
            Self::I16 => 25,
            Self::I32 => 26,
            Self::I64 => 27,
            Self::F64 => 28,
            Self::IQ1_M => 29,
            Self::BF16 => 30,
            Self::TQ1_0 => 34,
            Self::TQ2_0 => 35,
            Self::MXFP4 => 39,
            Self::NVFP4 => 40,
            Self::Q1_0 => 41,
            Self::Q2_0 => 42,
        }
    }

    /// The name as llama.cpp and the `gguf` package print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q8_1 => "Q8_1",
            Self::Q2_K => "Q2_K",
            Self::Q3_K => "Q3_K",
            Self::Q4_K => "Q4_K",
            Self::Q5_K => "Q5_K",
            Self::Q6_K => "Q6_K",
            Self::Q8_K => "Q8_K",
            Self::IQ2_XXS => "IQ2_XXS",
            Self::IQ2_XS => "IQ2_XS",
            Self::IQ3_XXS => "IQ3_XXS",
            Self::IQ1_S => "IQ1_S",
            Self::IQ4_NL => "IQ4_NL",
            Self::IQ3_S => "IQ3_S",
            Self::IQ2_S => "IQ2_S",
            Self::IQ4_XS => "IQ4_XS",
            Self::I8 => "I8",
            Self::I16 => "I16",
            Self::I32 => "I32",
            Self::I64 => "I64",
            Self::F64 => "F64",
            Self::IQ1_M => "IQ1_M",
            Self::BF16 => "BF16",
            Self::TQ1_0 => "TQ1_0",
            Self::TQ2_0 => "TQ2_0",
            Self::MXFP4 => "MXFP4",
            Self::NVFP4 => "NVFP4",
            Self::Q1_0 => "Q1_0",
            Self::Q2_0 => "Q2_0",
        }
    }

    /// Elements and bytes a block.
    pub const fn block(self) -> BlockLayout {
        let (elements, bytes) = match self {
            Self::F32 => (1, 4),
            Self::F16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q8_1 => (32, 36),
            Self::Q2_K => (256, 84),
            Self::Q3_K => (256, 110),
            Self::Q4_K => (256, 144),
            Self::Q5_K => (256, 176),
            Self::Q6_K => (256, 210),
            Self::Q8_K => (256, 292),
            Self::IQ2_XXS => (256, 66),
            Self::IQ2_XS => (256, 74),
            Self::IQ3_XXS => (256, 98),
            Self::IQ1_S => (256, 50),
            Self::IQ4_NL => (32, 18),
            Self::IQ3_S => (256, 110),
            Self::IQ2_S => (256, 82),
            Self::IQ4_XS => (256, 136),
            Self::I8 => (1, 1),
            Self::I16 => (1, 2),
            Self::I32 => (1, 4),
            Self::I64 => (1, 8),
            Self::F64 => (1, 8),
            Self::IQ1_M => (256, 56),
            Self::BF16 => (1, 2),
            Self::TQ1_0 => (256, 54),
            Self::TQ2_0 => (256, 66),
            Self::MXFP4 => (32, 17),
            Self::NVFP4 => (64, 36),
            Self::Q1_0 => (128, 18),
            Self::Q2_0 => (64, 18),
        };
        BlockLayout { elements, bytes }
    }

    /// Bytes of `elements` consecutive elements; `None` when they are not whole blocks or the
    /// product overflows.
    pub const fn bytes_for(self, elements: usize) -> Option<usize> {
        let block = self.block();
        if !elements.is_multiple_of(block.elements) {
            return None;
        }
        (elements / block.elements).checked_mul(block.bytes)
    }
}

impl std::fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
