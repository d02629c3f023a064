//! The codebooks of the IQ types: rows of 8 (or 4) small integers.
//!
//! They are data that no formula gives; `grids/README.md` says where they come from.

/// IQ2_XXS: `[256, 8]` magnitudes of 8, 25 or 43.
pub static IQ2_XXS: [[i8; 8]; 256] = unpack(include_bytes!("grids/iq2_xxs.bin"), &[8, 25, 43], 2);
/// IQ2_XS: `[512, 8]` magnitudes of 8, 25 or 43.
pub static IQ2_XS: [[i8; 8]; 512] = unpack(include_bytes!("grids/iq2_xs.bin"), &[8, 25, 43], 2);
/// IQ2_S: `[1024, 8]` magnitudes of 8, 25 or 43.
pub static IQ2_S: [[i8; 8]; 1024] = unpack(include_bytes!("grids/iq2_s.bin"), &[8, 25, 43], 2);
/// IQ3_XXS: `[256, 4]` magnitudes.
pub static IQ3_XXS: [[i8; 4]; 256] = unpack(
    include_bytes!("grids/iq3_xxs.bin"),
    &[4, 12, 20, 28, 36, 44, 52, 62],
    4,
);
/// IQ3_S: `[512, 4]` odd magnitudes up to 15.
pub static IQ3_S: [[i8; 4]; 512] = unpack(
    include_bytes!("grids/iq3_s.bin"),
    &[1, 3, 5, 7, 9, 11, 13, 15],
    4,
);
/// IQ1_S and IQ1_M: `[2048, 8]` of -1, 0 and 1.
pub static IQ1: [[i8; 8]; 2048] = unpack(include_bytes!("grids/iq1_s.bin"), &[-1, 0, 1], 2);

/// Reads `bits`-wide indices into `values`, the lowest bits of a byte first.
const fn unpack<const LEN: usize, const ROWS: usize>(
    packed: &[u8],
    values: &[i8],
    bits: usize,
) -> [[i8; LEN]; ROWS] {
    assert!(packed.len() * 8 == LEN * ROWS * bits);
    let per_byte = 8 / bits;
    let mut grid = [[0; LEN]; ROWS];
    let mut entry = 0;
    while entry < LEN * ROWS {
        let byte = packed[entry / per_byte] as usize;
        let index = (byte >> (bits * (entry % per_byte))) & ((1 << bits) - 1);
        grid[entry / LEN][entry % LEN] = values[index];
        entry += 1;
    }
    grid
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    fn sha256<const LEN: usize>(grid: &[[i8; LEN]]) -> String {
        Sha256::digest(bytemuck::cast_slice::<[i8; LEN], u8>(grid))
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    #[test]
    fn the_grids_are_the_published_ones() {
        let expected = [
            (
                sha256(&super::IQ2_XXS),
                "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54",
            ),
            (
                sha256(&super::IQ2_XS),
                "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de",
            ),
            (
                sha256(&super::IQ2_S),
                "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88",
            ),
            (
                sha256(&super::IQ3_XXS),
                "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d",
            ),
            (
                sha256(&super::IQ3_S),
                "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f",
            ),
            (
                sha256(&super::IQ1),
                "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a",
            ),
        ];
        for (actual, expected) in expected {
            assert_eq!(actual, expected);
        }
    }
}
