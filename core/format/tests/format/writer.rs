//! What the GGUF writer refuses.

use kvant_format::ByteOrder;
use kvant_format::gguf::Value;
use kvant_format::gguf::write::{GgufBuilder, WriteError};
use kvant_quant::WeightFormat;

#[test]
fn names_shapes_and_alignment() {
    let start = |fill: &dyn Fn(&mut GgufBuilder)| {
        let mut builder = GgufBuilder::new(ByteOrder::Little);
        fill(&mut builder);
        builder.start(Vec::new()).err()
    };
    let twice = start(&|b| {
        b.metadata("k", Value::U8(1)).metadata("k", Value::U8(2));
    });
    assert!(matches!(twice, Some(WriteError::DuplicateKey(_))));
    let twice = start(&|b| {
        b.tensor("t", &[1], WeightFormat::F32)
            .tensor("t", &[1], WeightFormat::F32);
    });
    assert!(matches!(twice, Some(WriteError::DuplicateTensor { .. })));
    for shape in [
        &[][..],
        &[1; 5],
        &[0],
        &[32, 8],
        &[usize::MAX, usize::MAX & !31],
    ] {
        let refused = start(&|b| {
            b.tensor("t", shape, WeightFormat::Q4_0);
        });
        assert!(
            matches!(refused, Some(WriteError::Shape { .. })),
            "{shape:?}"
        );
    }
    for value in [Value::U32(0), Value::U32(24), Value::I32(32)] {
        let refused = start(&|b| {
            b.metadata("general.alignment", value.clone());
        });
        assert!(matches!(refused, Some(WriteError::Alignment)));
    }
}

#[test]
fn data_must_be_complete_and_no_more() {
    let builder = |order| {
        let mut builder = GgufBuilder::new(order);
        builder
            .tensor("a", &[2, 32], WeightFormat::Q4_0)
            .tensor("b", &[1], WeightFormat::F32);
        builder
    };
    let mut writer = builder(ByteOrder::Little).start(Vec::new()).unwrap();
    writer.data(&[0; 7]).unwrap();
    let error = writer.data(&[0; 30]).unwrap_err();
    assert_eq!(error.to_string(), "1 bytes more than tensor a takes");
    writer.data(&[0; 29]).unwrap();
    let error = writer.finish().unwrap_err();
    assert_eq!(error.to_string(), "4 bytes of tensor b were not given");

    let mut writer = builder(ByteOrder::Big).start(Vec::new()).unwrap();
    let error = writer.data(&[0; 7]).unwrap_err();
    assert!(matches!(error, WriteError::PartOfBlock { .. }));
    writer.data(&[0; 18]).unwrap();
    writer.data(&[0; 18]).unwrap();
    writer.data(&[0; 4]).unwrap();
    assert!(matches!(
        writer.data(&[1]),
        Err(WriteError::TooMuchData { extra: 1, .. })
    ));
    assert!(writer.finish().is_ok());
}
