//! dedupe: of records that agree, the first stays.
//!
//! What has been seen is kept as halves of SHA-256, 16 bytes per record, and goes to the ledger
//! with the batch in which it was first seen, so that a resumed run knows it again.

use std::collections::HashSet;

use sha2::{Digest, Sha256};
use tidegate_geo::{Batch, Value};

use super::{Aside, Flow, SeenKey, Step, StepError};

struct Dedupe {
    scope: u16,
    fields: Vec<usize>,
    geometry: bool,
    seen: HashSet<[u8; 16]>,
}

pub(super) fn build(names: &[String], scope: u16, flow: &Flow) -> Result<Box<dyn Step>, String> {
    let fields = if names.is_empty() {
        (0..flow.schema.fields().len()).collect()
    } else {
        names.iter().map(|name| flow.field(name)).collect::<Result<_, _>>()?
    };
    Ok(Box::new(Dedupe { scope, fields, geometry: names.is_empty(), seen: HashSet::new() }))
}

/// What tells a record apart by some of its fields.
pub(crate) fn hash(batch: &Batch, row: usize, fields: &[usize], geometry: bool) -> [u8; 16] {
    let mut hash = Sha256::new();
    let mut part = |tag: u8, bytes: &[u8]| {
        hash.update([tag]);
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for at in fields {
        match batch.value(row, *at) {
            Value::Null => part(0, &[]),
            Value::Bool(b) => part(1, &[u8::from(b)]),
            Value::Int(i) => part(2, &i.to_le_bytes()),
            Value::Real(x) => part(3, &(x + 0.0).to_le_bytes()),
            Value::Text(text) => part(4, text.as_bytes()),
            Value::Bytes(bytes) => part(5, bytes),
            Value::Json(text) => part(6, text.as_bytes()),
        }
    }
    if geometry {
        part(7, batch.geometry(row).unwrap_or_default());
    }
    let whole: [u8; 32] = hash.finalize().into();
    whole.first_chunk().copied().unwrap_or_default()
}

impl Step for Dedupe {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let mut keep = Vec::with_capacity(batch.len());
        for row in 0..batch.len() {
            let hash = hash(&batch, row, &self.fields, self.geometry);
            let first = self.seen.insert(hash);
            if first {
                aside.seen.push(SeenKey { scope: self.scope, hash });
            } else {
                aside.deduped += 1;
            }
            keep.push(first);
        }
        Ok(batch.filter(&keep))
    }

    fn remember(&mut self, seen: &SeenKey) {
        if seen.scope == self.scope {
            self.seen.insert(seen.hash);
        }
    }
}
