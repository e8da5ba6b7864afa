//! NTv2 files.

use std::io::Read;

use super::{NODES_MAX, Subgrid, broken};
use crate::error::Error;

const RECORD_LEN: usize = 16;
const HEAD_LEN: usize = 11 * RECORD_LEN;
const PARTS_MAX: u32 = 10_000;

struct Ntv2Header {
    bytes: [u8; HEAD_LEN],
    big_endian: bool,
}

impl Ntv2Header {
    fn read(file: &mut impl Read, big_endian: bool) -> Result<Ntv2Header, Error> {
        let mut bytes = [0; HEAD_LEN];
        file.read_exact(&mut bytes).map_err(|_| broken("the file ends within an NTv2 header"))?;
        Ok(Ntv2Header { bytes, big_endian })
    }

    /// The value of a record: its last eight bytes.
    fn value<const N: usize>(&self, record: usize) -> [u8; N] {
        let at = record * RECORD_LEN + 8;
        let mut value = self.bytes.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N]);
        if self.big_endian {
            value.reverse();
        }
        value
    }

    fn int(&self, record: usize) -> u32 {
        u32::from_le_bytes(self.value(record))
    }

    fn real(&self, record: usize) -> f64 {
        f64::from_le_bytes(self.value(record))
    }

    fn starts(&self, record: usize, with: &[u8]) -> bool {
        self.bytes.get(record * RECORD_LEN..).is_some_and(|bytes| bytes.starts_with(with))
    }
}

pub(super) fn read(file: &mut impl Read) -> Result<Vec<Subgrid>, Error> {
    let mut head = Ntv2Header::read(file, false)?;
    head.big_endian = head.int(0) != 11;
    if !head.starts(0, b"NUM_OREC") || head.int(0) != 11 || head.int(1) != 11 {
        return Err(broken("the file is not NTv2"));
    }
    let big_endian = head.big_endian;
    // Unit of the file, in degrees.
    let unit = match head.bytes.get(3 * RECORD_LEN + 8..4 * RECORD_LEN) {
        Some(kind) if kind.starts_with(b"SECONDS") => 1.0 / 3600.0,
        Some(kind) if kind.starts_with(b"MINUTES") => 1.0 / 60.0,
        Some(kind) if kind.starts_with(b"DEGREES") => 1.0,
        _ => return Err(broken("the unit of the grid is not one of NTv2")),
    };
    let count = head.int(2);
    if count == 0 || count > PARTS_MAX {
        return Err(broken("the number of subgrids is out of range"));
    }
    let (mut parts, mut nodes) = (Vec::new(), 0);
    for _ in 0..count {
        let part = Subgrid::read(file, big_endian, unit, NODES_MAX - nodes)?;
        nodes += part.shifts.len();
        parts.push(part);
    }
    Ok(parts)
}

impl Subgrid {
    fn read(file: &mut impl Read, big_endian: bool, unit: f64, nodes_max: usize) -> Result<Subgrid, Error> {
        let head = Ntv2Header::read(file, big_endian)?;
        if !head.starts(0, b"SUB_NAME") {
            return Err(broken("a subgrid has no name"));
        }
        let [south, north, east, west, step_y, step_x] = [4, 5, 6, 7, 8, 9].map(|at| head.real(at) * unit);
        let count = head.int(10) as usize;
        // Longitudes are positive to the west.
        let cells = |from: f64, to: f64, step: f64| -> Option<usize> {
            let cells = ((to - from) / step).round();
            (step > 0.0 && cells >= 1.0 && cells < NODES_MAX as f64).then(|| cells as usize + 1)
        };
        let size = cells(south, north, step_y).zip(cells(east, west, step_x));
        let Some((rows, columns)) = size.filter(|(rows, columns)| rows.checked_mul(*columns) == Some(count))
        else {
            return Err(broken("the size of the grid does not match its number of nodes"));
        };
        if count > nodes_max {
            return Err(broken("the grid has too many nodes"));
        }
        let mut shifts = Vec::new();
        let mut node = [0; RECORD_LEN];
        for _ in 0..count {
            file.read_exact(&mut node).map_err(|_| broken("the file ends within a subgrid"))?;
            let [north, west] = [0, 4].map(|at| {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(node.get(at..at + 4).unwrap_or(&[0; 4]));
                if big_endian { f32::from_be_bytes(bytes) } else { f32::from_le_bytes(bytes) }
            });
            shifts.push([-west, north]);
        }
        Ok(Subgrid { south, east: -east, step: (step_x, step_y), columns, rows, unit: [unit; 2], shifts })
    }
}
