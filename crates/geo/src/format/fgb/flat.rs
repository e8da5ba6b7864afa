//! A small writer of FlatBuffers, front to back.
//!
//! A table is a list of places of its fields (the vtable), and the fields. A field that is an
//! object holds the distance to it, which must lie behind. All alignment counts from the start of
//! the buffer, after the length that stands before it.

/// A field of a table.
#[derive(Clone, Copy, Debug)]
pub(super) enum TableField {
    U8(u8),
    U16(u16),
    I32(i32),
    U64(u64),
    /// The distance to an object that will be written.
    To,
}

impl TableField {
    fn size(self) -> usize {
        match self {
            TableField::U8(_) => 1,
            TableField::U16(_) => 2,
            TableField::I32(_) | TableField::To => 4,
            TableField::U64(_) => 8,
        }
    }
}

/// A buffer being written, with its length before it.
#[derive(Debug, Default)]
pub(super) struct Flat {
    out: Vec<u8>,
}

/// The length before the buffer.
const PREFIX: usize = 4;

impl Flat {
    /// Starts a new buffer.
    pub(super) fn begin(&mut self) {
        self.out.clear();
        self.out.extend_from_slice(&[0; PREFIX + 4]);
    }

    /// The whole buffer with its length.
    pub(super) fn finish(&mut self) -> &[u8] {
        self.align(4, 0);
        let len = u32::try_from(self.out.len() - PREFIX).unwrap_or(u32::MAX);
        self.set(0, len);
        &self.out
    }

    /// Where the distance to the root table stands.
    pub(super) fn root(&self) -> usize {
        PREFIX
    }

    fn set(&mut self, at: usize, number: u32) {
        if let Some(slot) = self.out.get_mut(at..at + 4) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Pads so that what comes `ahead` bytes later is aligned.
    fn align(&mut self, to: usize, ahead: usize) {
        while !(self.out.len() - PREFIX + ahead).is_multiple_of(to) {
            self.out.push(0);
        }
    }

    /// Writes a table that the field at `from` refers to. Returns the places of its fields, to be
    /// referred from; there may be eight.
    pub(super) fn table(&mut self, from: usize, fields: &[(u16, TableField)]) -> [usize; 8] {
        let slots = fields.iter().map(|(slot, _)| usize::from(*slot) + 1).max().unwrap_or(0);
        let vtable_len = 4 + slots * 2;
        self.align(8, vtable_len + 4);
        let vtable = self.out.len();
        self.out.resize(vtable + vtable_len, 0);
        let table = self.out.len();
        self.out.extend_from_slice(&u32::try_from(vtable_len).unwrap_or(0).to_le_bytes());
        let mut places = [0; 8];
        for ((slot, field), place) in fields.iter().zip(&mut places) {
            while !(self.out.len() - PREFIX).is_multiple_of(field.size()) {
                self.out.push(0);
            }
            *place = self.out.len();
            let offset = u16::try_from(self.out.len() - table).unwrap_or(0).to_le_bytes();
            let entry = vtable + 4 + usize::from(*slot) * 2;
            if let Some(bytes) = self.out.get_mut(entry..entry + 2) {
                bytes.copy_from_slice(&offset);
            }
            match *field {
                TableField::U8(x) => self.out.push(x),
                TableField::U16(x) => self.out.extend_from_slice(&x.to_le_bytes()),
                TableField::I32(x) => self.out.extend_from_slice(&x.to_le_bytes()),
                TableField::U64(x) => self.out.extend_from_slice(&x.to_le_bytes()),
                TableField::To => self.out.extend_from_slice(&[0; 4]),
            }
        }
        let table_len = u16::try_from(self.out.len() - table).unwrap_or(0);
        let sizes = [u16::try_from(vtable_len).unwrap_or(0), table_len];
        for (bytes, size) in
            self.out.get_mut(vtable..vtable + 4).unwrap_or_default().chunks_exact_mut(2).zip(sizes)
        {
            bytes.copy_from_slice(&size.to_le_bytes());
        }
        self.refer(from, table);
        places
    }

    fn refer(&mut self, from: usize, to: usize) {
        self.set(from, u32::try_from(to - from).unwrap_or(0));
    }

    /// Begins a list of `count` items of a size, referred to from `from`.
    fn list(&mut self, from: usize, count: usize, item_align: usize) {
        self.align(item_align.max(4), 4);
        self.refer(from, self.out.len());
        self.out.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    }

    pub(super) fn bytes(&mut self, from: usize, bytes: &[u8]) {
        self.list(from, bytes.len(), 1);
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, from: usize, text: &str) {
        self.bytes(from, text.as_bytes());
        self.out.push(0);
    }

    pub(super) fn u32s(&mut self, from: usize, numbers: &[u32]) {
        self.list(from, numbers.len(), 4);
        for number in numbers {
            self.out.extend_from_slice(&number.to_le_bytes());
        }
    }

    pub(super) fn f64s(&mut self, from: usize, count: usize, numbers: impl Iterator<Item = f64>) {
        self.list(from, count, 8);
        for number in numbers {
            self.out.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// A list of objects to be written; returns the place of the first reference, the others
    /// follow each four bytes on.
    pub(super) fn objects(&mut self, from: usize, count: usize) -> usize {
        self.list(from, count, 4);
        let first = self.out.len();
        self.out.resize(first + count * 4, 0);
        first
    }
}
