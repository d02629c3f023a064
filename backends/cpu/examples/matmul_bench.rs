//! Speed of matrix products, format by format: GB of packed weights a second for one row, GOP a second
//! (two a multiplication and addition) for many.
//!
//! `cargo run --release -p kvant-cpu --example matmul_bench -- [--level L] [--threads N] [--formats
//! Q4_0,F16] [--rows 1,128] [--shapes 576x576,49152x576]`
//!
//! Each shape is repeated until the weights take about 96 MB, as in a model; the best of several passes
//! counts, because other work only ever makes a pass slower.

// It calls the kernels as the backend does.
#![allow(unsafe_code)]

use kvant_cpu::Level;
use kvant_cpu::matmul::{MatMul, MatMulIo, MatMulSpec};
use kvant_cpu::weights::{PackedWeight, WeightArena, sequential};
use kvant_device::Epilogue;
use kvant_quant::WeightFormat;
use kvant_quant::testing::random_blocks;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const POOL_BYTES: usize = 96 << 20;
const PASS_TIME: Duration = Duration::from_millis(1500);

struct Options {
    level: Level,
    threads: usize,
    formats: Vec<WeightFormat>,
    rows: Vec<usize>,
    shapes: Vec<(usize, usize)>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        level: Level::detect(),
        threads: 1,
        formats: ["Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K", "F16"]
            .iter()
            .filter_map(|name| format(name))
            .collect(),
        rows: vec![1, 128],
        shapes: vec![(576, 576), (1536, 576), (576, 1536), (49152, 576)],
    };
    let mut args = std::env::args().skip(1).filter(|a| a != "--bench");
    while let Some(name) = args.next() {
        let value = args.next().ok_or(format!("{name} needs a value"))?;
        let list = || value.split(',');
        let number = |s: &str| s.parse::<usize>().map_err(|e| format!("{s}: {e}"));
        match name.as_str() {
            "--level" => options.level = value.parse().map_err(|e| format!("{e}"))?,
            "--threads" => options.threads = number(&value)?,
            "--rows" => options.rows = list().map(number).collect::<Result<_, _>>()?,
            "--formats" => {
                options.formats = list()
                    .map(|n| format(n).ok_or(format!("no format {n}")))
                    .collect::<Result<_, _>>()?;
            }
            "--shapes" => {
                let shape = |s: &str| {
                    let (n, k) = s.split_once('x').ok_or(format!("{s} is not NxK"))?;
                    Ok::<_, String>((number(n)?, number(k)?))
                };
                options.shapes = list().map(shape).collect::<Result<_, _>>()?;
            }
            _ => return Err(format!("no option {name}")),
        }
    }
    Ok(options)
}

fn format(name: &str) -> Option<WeightFormat> {
    WeightFormat::ALL.iter().copied().find(|f| f.name() == name)
}

fn main() -> Result<(), String> {
    let options = options()?;
    println!("level {}, {} threads", options.level, options.threads);
    for &(n, k) in &options.shapes {
        for &format in &options.formats {
            let Ok(bytes) = PackedWeight::predicted_bytes(format, n, k) else {
                continue;
            };
            let arena = WeightArena::new();
            let blocks = random_blocks(format, n * k / format.block().elements, 1);
            let pool: Vec<PackedWeight> = (0..POOL_BYTES.div_ceil(bytes))
                .map(|_| {
                    let mut builder = PackedWeight::builder(&arena, format, n, k)?;
                    builder.push(&blocks, &sequential)?;
                    builder.finish()
                })
                .collect::<Result<_, _>>()
                .map_err(|e| e.to_string())?;
            for &rows in &options.rows {
                let seconds = measure(&options, &pool, rows);
                let work = 2.0 * (n * k * rows) as f64;
                println!(
                    "{n}x{k} {:7} rows {rows:4}: {:9.2} us  {:6.1} GB/s  {:7.1} GOP/s",
                    format.name(),
                    seconds * 1e6,
                    bytes as f64 / seconds / 1e9,
                    work / seconds / 1e9,
                );
            }
        }
    }
    Ok(())
}

/// Seconds a product takes, at best.
fn measure(options: &Options, pool: &[PackedWeight], rows: usize) -> f64 {
    let k = pool[0].k();
    let specs: Vec<[&PackedWeight; 1]> = pool.iter().map(|w| [w]).collect();
    let plans: Vec<MatMul<'_>> = specs
        .iter()
        .map(|weights| {
            let spec = MatMulSpec {
                weights,
                biases: &[],
                epilogue: Epilogue::Store,
            };
            MatMul::new(options.level, spec, rows, options.threads, false).expect("one weight")
        })
        .collect();
    let x: Vec<f32> = (0..rows * k)
        .map(|i| ((i * 37) % 101) as f32 - 50.0)
        .collect();
    let mut acts = aligned(plans[0].act_bytes());
    let mut out = vec![0f32; rows * plans[0].width()];
    let io = MatMulIo {
        x: x.as_ptr(),
        acts: acts.as_mut_ptr().cast(),
        out: out.as_mut_ptr(),
        out_stride: plans[0].width(),
        residual: std::ptr::null(),
        residual_stride: 0,
    };
    // A pass is `batch` products, short enough that many passes are not interrupted; threads meet after
    // each product.
    let bytes = pool[0].bytes() + 4 * rows * (k + plans[0].width());
    let work = rows * k * plans[0].width();
    let batch = (16_000_000 / bytes)
        .min(300_000_000 / work)
        .clamp(1, pool.len());
    let claims: Vec<[AtomicUsize; 2]> = (0..batch).map(|_| Default::default()).collect();
    let met = AtomicUsize::new(0);
    let mut best = f64::INFINITY;
    let started = Instant::now();
    let mut first = 0;
    while started.elapsed() < PASS_TIME {
        for claim in &claims {
            claim[0].store(0, Ordering::Relaxed);
            claim[1].store(0, Ordering::Relaxed);
        }
        met.store(0, Ordering::SeqCst);
        let (plans, claims, met, io) = (&plans, &claims, &met, &io);
        let work = |thread: usize| {
            let mut scratch = aligned(plans[0].scratch_bytes());
            let mut meetings = 0;
            let mut meet = || {
                meetings += options.threads;
                met.fetch_add(1, Ordering::AcqRel);
                while met.load(Ordering::Acquire) < meetings {
                    std::hint::spin_loop();
                }
            };
            meet();
            let start = Instant::now();
            for i in 0..batch {
                let plan = &plans[(first + i) % plans.len()];
                loop {
                    let chunk = claims[i][0].fetch_add(1, Ordering::Relaxed);
                    if chunk >= plan.n_prepare_chunks() {
                        break;
                    }
                    // SAFETY: buffers are as large as the plan says; each chunk is claimed once.
                    unsafe { plan.prepare_chunk(chunk, io) }
                }
                meet();
                loop {
                    let chunk = claims[i][1].fetch_add(1, Ordering::Relaxed);
                    if chunk >= plan.n_chunks() {
                        break;
                    }
                    // SAFETY: as above; the preparation is done, and the scratch is this thread's.
                    unsafe { plan.run_chunk(chunk, io, scratch.as_mut_ptr().cast()) }
                }
                meet();
            }
            let _ = thread;
            start.elapsed().as_secs_f64() / batch as f64
        };
        let seconds = std::thread::scope(|scope| {
            let others: Vec<_> = (1..options.threads)
                .map(|t| scope.spawn(move || work(t)))
                .collect();
            let seconds = work(0);
            for other in others {
                let _ = other.join();
            }
            seconds
        });
        best = best.min(seconds);
        first = (first + batch) % plans.len();
    }
    best
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

fn aligned(bytes: usize) -> Vec<Line> {
    vec![Line { _bytes: [0; 64] }; bytes.div_ceil(64)]
}
