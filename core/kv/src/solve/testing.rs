//! Small measurements for tests.

use super::sensitivity::{
    LayerSensitivity, MeasuredModel, PairLoss, SENSITIVITY_VERSION, Sensitivity,
};

/// A layer of 8 elements a token whose candidate `i` is the pair `fi/fi` of the bytes and loss given.
pub(crate) fn layer(candidates: &[(u64, f64)]) -> LayerSensitivity {
    let pair = |(i, &(block_bytes, loss)): (usize, &(u64, f64))| PairLoss {
        k: format!("f{i}"),
        v: format!("f{i}"),
        kept: 1.0,
        block_bytes,
        loss,
        estimated: false,
    };
    LayerSensitivity {
        elements_per_token: 8,
        window: None,
        keys: Vec::new(),
        values: Vec::new(),
        pairs: candidates.iter().enumerate().map(pair).collect(),
    }
}

/// Layers of a model that has no name.
pub(crate) fn sensitivity(layers: Vec<LayerSensitivity>) -> Sensitivity {
    Sensitivity {
        version: SENSITIVITY_VERSION,
        model: MeasuredModel {
            name: "test".to_owned(),
            hash: "00".to_owned(),
        },
        text: "text".to_owned(),
        tokens: 100,
        layers,
    }
}
