//! stub
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SamplerError { #[error("nan")] Nan }
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SamplerOptions {}
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken { pub id: u32 }
pub struct Sampler {}
impl Sampler {
    pub fn new(_: SamplerOptions, _: usize) -> Result<Self, SamplerError> { Ok(Self {}) }
    pub fn sample(&mut self, logits: &mut [f32], _: &[u32], _: usize) -> Result<SampledToken, SamplerError> {
        let mut best = 0; for i in 0..logits.len() { if logits[i] > logits[best] { best = i; } } Ok(SampledToken { id: best as u32 })
    }
}
