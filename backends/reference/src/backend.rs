//! Memory and weights of the reference backend.

use crate::exec::RefExec;
use kvant_device::{
    Backend, Bindings, BufferReq, Caps, DeviceError, Op, PrepareOptions, Program, StepInput,
    Support, WeightDesc,
};
use std::cell::RefCell;
use std::rc::Rc;

/// A backend that computes every op from its definition, in f64 where sums are long.
#[derive(Debug, Clone)]
pub struct ReferenceBackend {
    caps: Caps,
}

/// Plain memory.
pub type RefBuffer = Rc<RefCell<Vec<u8>>>;

/// A weight as f32, `[n_rows, n_cols]`.
#[derive(Debug, Clone)]
pub struct RefWeight {
    pub(crate) n_rows: usize,
    pub(crate) n_cols: usize,
    pub(crate) values: Rc<Vec<f32>>,
}

/// A weight while its rows arrive.
#[derive(Debug)]
pub struct RefUpload {
    desc: WeightDesc,
    values: Vec<f32>,
}

impl Default for ReferenceBackend {
    fn default() -> Self {
        Self {
            caps: Caps {
                name: "reference".to_owned(),
                parallelism: 1,
                memory_bytes: None,
            },
        }
    }
}

fn elements(desc: &WeightDesc) -> Result<usize, DeviceError> {
    desc.n_rows
        .checked_mul(desc.n_cols)
        .ok_or_else(|| DeviceError::Overflow {
            what: desc.name.clone(),
        })
}

fn weight_error(desc: &WeightDesc, why: impl Into<String>) -> DeviceError {
    DeviceError::Weight {
        name: desc.name.clone(),
        format: desc.format,
        why: why.into(),
    }
}

impl Backend for ReferenceBackend {
    type Buffer = RefBuffer;
    type Weight = RefWeight;
    type WeightUpload = RefUpload;
    type Exec = RefExec;

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn supports(&self, _op: &Op) -> Support {
        Support::Native
    }

    fn alloc(&self, req: &BufferReq) -> Result<RefBuffer, DeviceError> {
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(req.bytes)
            .map_err(|_| DeviceError::OutOfMemory {
                wanted: req.bytes,
                what: req.what.clone(),
            })?;
        bytes.resize(req.bytes, 0);
        Ok(Rc::new(RefCell::new(bytes)))
    }

    fn weight_bytes(&self, desc: &WeightDesc) -> Result<usize, DeviceError> {
        elements(desc)?
            .checked_mul(4)
            .ok_or_else(|| DeviceError::Overflow {
                what: desc.name.clone(),
            })
    }

    fn begin_weight(&self, desc: &WeightDesc) -> Result<RefUpload, DeviceError> {
        let wanted = self.weight_bytes(desc)?;
        let mut values = Vec::new();
        values
            .try_reserve_exact(wanted / 4)
            .map_err(|_| DeviceError::OutOfMemory {
                wanted,
                what: desc.name.clone(),
            })?;
        Ok(RefUpload {
            desc: desc.clone(),
            values,
        })
    }

    fn push_rows(&self, upload: &mut RefUpload, bytes: &[u8]) -> Result<(), DeviceError> {
        let desc = &upload.desc;
        kvant_quant::check_scales(desc.format, bytes)
            .map_err(|e| weight_error(desc, e.to_string()))?;
        let block = desc.format.block();
        let n = bytes.len() / block.bytes * block.elements;
        let at = upload.values.len();
        if at + n > elements(desc)? {
            return Err(weight_error(desc, "more rows than declared"));
        }
        upload.values.resize(at + n, 0.0);
        kvant_quant::decode(desc.format, bytes, &mut upload.values[at..])
            .map_err(|e| weight_error(&upload.desc, e.to_string()))
    }

    fn finish_weight(&self, upload: RefUpload) -> Result<RefWeight, DeviceError> {
        let RefUpload { desc, values } = upload;
        if values.len() != elements(&desc)? {
            return Err(weight_error(&desc, "fewer rows than declared"));
        }
        Ok(RefWeight {
            n_rows: desc.n_rows,
            n_cols: desc.n_cols,
            values: Rc::new(values),
        })
    }

    fn exec_bytes(
        &self,
        program: &Program,
        options: &PrepareOptions,
    ) -> Result<usize, DeviceError> {
        program
            .arena
            .bytes(options.max_tokens, options.max_outputs)
            .ok_or_else(|| DeviceError::Overflow {
                what: "activations".to_owned(),
            })
    }

    fn prepare(
        &self,
        program: &Program,
        bindings: Bindings<'_, Self>,
        options: &PrepareOptions,
    ) -> Result<RefExec, DeviceError> {
        RefExec::new(
            program.clone(),
            bindings.weights.to_vec(),
            bindings.kv,
            *options,
        )
    }

    fn submit(&self, exec: &mut RefExec, step: &StepInput<'_>) -> Result<(), DeviceError> {
        exec.run(step)
    }

    async fn read(
        &self,
        exec: &RefExec,
        index: usize,
        dst: &mut Vec<f32>,
    ) -> Result<(), DeviceError> {
        dst.clear();
        dst.extend_from_slice(exec.output(index));
        Ok(())
    }
}
