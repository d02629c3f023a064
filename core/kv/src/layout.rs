//! Where the bytes of each block lie: a region for each (layer, keys or values), blocks of one
//! group numbered alike in all of its regions.

use crate::error::KvError;
use crate::geometry::KvGeometry;
use crate::plan::KvPlan;
use kvant_quant::{KV_BLOCK_TOKENS, KvFormat};

/// Every region begins at a multiple of this, which is also the strictest offset that GPU APIs ask
/// of a storage binding.
pub const REGION_ALIGN_BYTES: usize = 256;

/// Keys or values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvSide {
    /// Keys.
    K,
    /// Values.
    V,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stride {
    group: usize,
    format: KvFormat,
    block_bytes: usize,
}

/// Bytes a block of each layer's keys and values, before the number of blocks is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvLayout {
    /// Keys and values of each layer: `[layer][side]`.
    strides: Vec<[Stride; 2]>,
    n_groups: usize,
}

impl KvLayout {
    /// Joins a plan and a geometry; an error when they disagree or byte counts overflow.
    pub fn new(plan: &KvPlan, geometry: &KvGeometry) -> Result<Self, KvError> {
        geometry.validate()?;
        plan.validate(geometry.layers.len())?;
        let strides = plan
            .layers
            .iter()
            .zip(&geometry.layers)
            .map(|(formats, shape)| {
                let stride = |format: KvFormat, head_dim| {
                    Ok(Stride {
                        group: shape.group,
                        format,
                        block_bytes: format.block_bytes(shape.n_kv_heads, head_dim).ok_or(
                            KvError::Overflow {
                                what: "bytes of a block",
                            },
                        )?,
                    })
                };
                Ok([
                    stride(formats.k, shape.head_dim_k)?,
                    stride(formats.v, shape.head_dim_v)?,
                ])
            })
            .collect::<Result<_, KvError>>()?;
        let layout = Self {
            strides,
            n_groups: geometry.groups.len(),
        };
        for group in 0..layout.n_groups {
            layout.checked_group_block_bytes(group)?;
        }
        Ok(layout)
    }

    /// Bytes a block of one layer's keys or values.
    pub fn block_bytes(&self, layer: usize, side: KvSide) -> usize {
        self.strides[layer][side as usize].block_bytes
    }

    /// Bytes that one block id of a group stands for, over all of the group's layers.
    pub fn group_block_bytes(&self, group: usize) -> usize {
        self.group_strides(group).map(|s| s.block_bytes).sum()
    }

    /// Bytes a token of a group takes once its block is full, over all of the group's layers.
    pub fn group_bytes_per_token(&self, group: usize) -> usize {
        self.group_block_bytes(group).div_ceil(KV_BLOCK_TOKENS)
    }

    /// Bytes of an arena with `n_blocks[group]` blocks in each group.
    pub fn total_bytes(&self, n_blocks: &[usize]) -> Result<usize, KvError> {
        Ok(self.arena(n_blocks)?.bytes)
    }

    /// Places every region for `n_blocks[group]` blocks in each group.
    pub fn arena(&self, n_blocks: &[usize]) -> Result<KvArena, KvError> {
        if n_blocks.len() != self.n_groups {
            return Err(KvError::Count {
                what: "block counts of KV groups",
                got: n_blocks.len(),
                wanted: self.n_groups,
            });
        }
        let overflow = KvError::Overflow {
            what: "bytes of the arena",
        };
        let mut bytes = 0usize;
        let mut regions = Vec::with_capacity(self.strides.len());
        for sides in &self.strides {
            let mut place = |stride: &Stride| {
                let offset = bytes.checked_next_multiple_of(REGION_ALIGN_BYTES)?;
                bytes = stride
                    .block_bytes
                    .checked_mul(n_blocks[stride.group])?
                    .checked_add(offset)?;
                Some(KvRegion {
                    format: stride.format,
                    offset,
                    block_bytes: stride.block_bytes,
                })
            };
            let (Some(k), Some(v)) = (place(&sides[0]), place(&sides[1])) else {
                return Err(overflow);
            };
            regions.push([k, v]);
        }
        Ok(KvArena {
            regions,
            bytes,
            n_blocks: n_blocks.to_vec(),
        })
    }

    fn group_strides(&self, group: usize) -> impl Iterator<Item = &Stride> {
        self.strides
            .iter()
            .flatten()
            .filter(move |s| s.group == group)
    }

    fn checked_group_block_bytes(&self, group: usize) -> Result<usize, KvError> {
        self.group_strides(group)
            .try_fold(0usize, |sum, s| sum.checked_add(s.block_bytes))
            .ok_or(KvError::Overflow {
                what: "bytes of a block over all layers",
            })
    }
}

/// One layer's keys or values in the arena: block `b` begins at `offset + b * block_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvRegion {
    /// Format of the blocks.
    pub format: KvFormat,
    /// First byte in the arena.
    pub offset: usize,
    /// Bytes a block.
    pub block_bytes: usize,
}

/// An arena with its regions placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvArena {
    regions: Vec<[KvRegion; 2]>,
    bytes: usize,
    n_blocks: Vec<usize>,
}

impl KvArena {
    /// The region of a layer's keys or values.
    pub fn region(&self, layer: usize, side: KvSide) -> KvRegion {
        self.regions[layer][side as usize]
    }

    /// Bytes of the whole arena.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Blocks of each group.
    pub fn n_blocks(&self) -> &[usize] {
        &self.n_blocks
    }

    /// Layers placed.
    pub fn n_layers(&self) -> usize {
        self.regions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{KvGroup, LayerGeometry};
    use kvant_quant::KvFormats;
    use proptest::prelude::*;

    fn layer(n_kv_heads: usize, k: usize, v: usize, group: usize) -> LayerGeometry {
        LayerGeometry {
            n_kv_heads,
            head_dim_k: k,
            head_dim_v: v,
            group,
        }
    }

    fn geometry(layers: Vec<LayerGeometry>) -> KvGeometry {
        KvGeometry {
            layers,
            groups: vec![KvGroup { window: None }, KvGroup { window: Some(64) }],
        }
    }

    #[test]
    fn bytes_of_a_known_model() {
        // 30 layers of 3 heads of 64: 2 * 30 * 3 * 64 * 2 bytes a token.
        let g = KvGeometry {
            layers: vec![layer(3, 64, 64, 0); 30],
            groups: vec![KvGroup { window: None }],
        };
        let layout = KvLayout::new(&KvPlan::uniform(30, KvFormat::F16), &g).unwrap();
        assert_eq!(layout.group_bytes_per_token(0), 23_040);
        assert_eq!(layout.block_bytes(7, KvSide::V), 32 * 3 * 64 * 2);
        assert_eq!(layout.total_bytes(&[10]).unwrap(), 23_040 * 32 * 10);
        let layout = KvLayout::new(&KvPlan::uniform(30, KvFormat::F32), &g).unwrap();
        assert_eq!(layout.group_bytes_per_token(0), 2 * 23_040);
        let mixed = KvFormats {
            k: KvFormat::F32,
            v: KvFormat::F16,
        };
        let layout = KvLayout::new(&KvPlan::uniform(30, mixed), &g).unwrap();
        assert_eq!(layout.group_bytes_per_token(0), 3 * 23_040 / 2);
        assert_eq!(layout.block_bytes(7, KvSide::K), 32 * 3 * 64 * 4);
        assert_eq!(layout.block_bytes(7, KvSide::V), 32 * 3 * 64 * 2);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let g = geometry(vec![layer(1, 2, 2, 0)]);
        assert!(KvLayout::new(&KvPlan::uniform(2, KvFormat::F16), &g).is_err());
        let layout = KvLayout::new(&KvPlan::uniform(1, KvFormat::F16), &g).unwrap();
        assert!(matches!(
            layout.arena(&[1]),
            Err(KvError::Count { wanted: 2, .. })
        ));
        assert!(matches!(
            layout.arena(&[usize::MAX / 64, 0]),
            Err(KvError::Overflow { .. })
        ));
        let huge = geometry(vec![layer(usize::MAX, 2, 2, 0)]);
        assert!(matches!(
            KvLayout::new(&KvPlan::uniform(1, KvFormat::F16), &huge),
            Err(KvError::Overflow { .. })
        ));
        let sum = usize::MAX / 100;
        let huge = geometry(vec![layer(sum, 1, 1, 0); 2]);
        assert!(matches!(
            KvLayout::new(&KvPlan::uniform(2, KvFormat::F16), &huge),
            Err(KvError::Overflow { .. })
        ));
    }

    proptest! {
        #[test]
        fn regions_are_aligned_apart_and_inside(
            shapes in prop::collection::vec(
                (1usize..5, 1usize..100, 1usize..100, 0usize..2, 0usize..KvFormats::all().count()),
                1..8,
            ),
            n_blocks in prop::collection::vec(0usize..50, 2),
        ) {
            let layers: Vec<_> = shapes.iter().map(|&(h, k, v, g, _)| layer(h, k, v, g)).collect();
            let mut plan = KvPlan::uniform(layers.len(), KvFormat::F16);
            for (layer, shape) in plan.layers.iter_mut().zip(&shapes) {
                let formats = KvFormats::all().nth(shape.4).unwrap();
                (layer.k, layer.v) = (formats.k, formats.v);
            }
            let arena = KvLayout::new(&plan, &geometry(layers.clone())).unwrap().arena(&n_blocks).unwrap();
            let mut end = 0;
            for (i, l) in layers.iter().enumerate() {
                let formats = plan.layers[i];
                for (side, format, head_dim) in [
                    (KvSide::K, formats.k, l.head_dim_k),
                    (KvSide::V, formats.v, l.head_dim_v),
                ] {
                    let region = arena.region(i, side);
                    prop_assert_eq!(region.format, format);
                    prop_assert_eq!(region.block_bytes, 32 * l.n_kv_heads * head_dim * format.element_bytes());
                    prop_assert_eq!(region.offset % REGION_ALIGN_BYTES, 0);
                    prop_assert!(region.offset >= end);
                    end = region.offset + region.block_bytes * n_blocks[l.group];
                }
            }
            prop_assert_eq!(end, arena.bytes());
        }
    }
}
