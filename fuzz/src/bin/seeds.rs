//! Writes the seeds that are not text: `cargo run --manifest-path fuzz/Cargo.toml --bin seeds`.

use std::error::Error;
use std::fs;
use std::path::Path;

use kvant_format::ByteOrder;
use kvant_format::gguf::write::GgufBuilder;
use kvant_format::gguf::{Array, Value};
use kvant_quant::WeightFormat;

fn main() -> Result<(), Box<dyn Error>> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let gguf = seeds.join("gguf");
    fs::create_dir_all(&gguf)?;
    fs::write(
        gguf.join("scalars"),
        file(ByteOrder::Little, scalars(), &[])?,
    )?;
    fs::write(gguf.join("arrays"), file(ByteOrder::Little, arrays(), &[])?)?;
    fs::write(
        gguf.join("vocabulary"),
        file(ByteOrder::Little, vocabulary(), &[])?,
    )?;
    let tensors = [
        ("token_embd.weight", &[3, 32][..], WeightFormat::Q4_0),
        ("output_norm.weight", &[8], WeightFormat::F32),
        ("blk.0.ffn_gate_exps.weight", &[2, 2, 32], WeightFormat::F16),
    ];
    fs::write(
        gguf.join("tensors"),
        file(ByteOrder::Little, vec![], &tensors)?,
    )?;
    fs::write(
        gguf.join("big_endian"),
        file(ByteOrder::Big, scalars(), &tensors)?,
    )?;
    let mut builder = GgufBuilder::new(ByteOrder::Little);
    builder.metadata("general.alignment", Value::U32(8));
    builder.tensor("t", &[2, 3], WeightFormat::BF16);
    let mut writer = builder.start(Vec::new())?;
    writer.data(&[0; 12])?;
    fs::write(gguf.join("aligned"), writer.finish()?)?;
    Ok(())
}

fn file(
    order: ByteOrder,
    values: Vec<Value>,
    tensors: &[(&str, &[usize], WeightFormat)],
) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut builder = GgufBuilder::new(order);
    for (i, value) in values.into_iter().enumerate() {
        builder.metadata(&format!("k{i}"), value);
    }
    for (name, shape, format) in tensors {
        builder.tensor(name, shape, *format);
    }
    let mut writer = builder.start(Vec::new())?;
    for (name, shape, format) in tensors {
        let bytes = format.bytes_for(shape.iter().product()).ok_or(*name)?;
        writer.data(&vec![1; bytes])?;
    }
    Ok(writer.finish()?)
}

fn scalars() -> Vec<Value> {
    vec![
        Value::U8(1),
        Value::I8(-1),
        Value::U16(2),
        Value::I16(-2),
        Value::U32(3),
        Value::I32(-3),
        Value::F32(0.5),
        Value::Bool(true),
        Value::String(b"text".to_vec()),
        Value::U64(4),
        Value::I64(-4),
        Value::F64(0.25),
    ]
}

fn arrays() -> Vec<Value> {
    [
        Array::U8(vec![1, 2]),
        Array::I8(vec![-1]),
        Array::U16(vec![1]),
        Array::I16(vec![-1]),
        Array::U32(vec![1]),
        Array::I32(vec![-1]),
        Array::F32(vec![0.5]),
        Array::Bool(vec![true, false]),
        Array::String(["", "a", "bc"].iter().collect()),
        Array::U64(vec![1]),
        Array::I64(vec![-1]),
        Array::F64(vec![]),
    ]
    .into_iter()
    .map(Value::Array)
    .collect()
}

fn vocabulary() -> Vec<Value> {
    let tokens = ["<s>", "</s>", "\u{2581}the", "<0x0A>", "\u{120}a"];
    vec![
        Value::String(b"llama".to_vec()),
        Value::Array(Array::String(tokens.iter().collect())),
        Value::Array(Array::F32(vec![0.0, 0.0, -1.0, -2.0, -3.0])),
        Value::Array(Array::I32(vec![3, 3, 1, 6, 1])),
    ]
}
