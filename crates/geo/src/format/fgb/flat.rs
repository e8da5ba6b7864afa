//! A small writer of size-prefixed FlatBuffers, front to back.
//!
//! A table is a vtable, which holds the offsets of the fields, followed by the fields. A field that
//! is an object holds the forward offset of that object.
//!
//! Alignment counts from the size prefix, as in the official builders, and not from the root offset
//! behind it: verifiers check the buffer with its prefix. A buffer is padded to [`ALIGN_MAX`], so
//! that the next one in the file starts aligned as well.

/// A field of a table.
#[derive(Clone, Copy, Debug)]
pub(super) enum TableField {
    U8(u8),
    U16(u16),
    I32(i32),
    U64(u64),
    /// Offset of an object that is written later.
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

/// Length of the size prefix in bytes.
const PREFIX: usize = 4;

/// Most fields that a table of ours has.
const FIELDS_MAX: usize = 9;

/// Largest alignment of a scalar in bytes: that of a double.
const ALIGN_MAX: usize = 8;

impl Flat {
    /// Starts a new buffer.
    pub(super) fn begin(&mut self) {
        self.out.clear();
        self.out.extend_from_slice(&[0; PREFIX + 4]);
    }

    /// The whole buffer with its size prefix.
    pub(super) fn finish(&mut self) -> &[u8] {
        self.align(ALIGN_MAX, 0);
        let len = u32::try_from(self.out.len() - PREFIX).unwrap_or(u32::MAX);
        self.set(0, len);
        &self.out
    }

    /// Position of the root offset.
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
        while !(self.out.len() + ahead).is_multiple_of(to) {
            self.out.push(0);
        }
    }

    /// Writes a table that the offset at `from` refers to. Returns the positions of its fields, at most
    /// nine, in the order given.
    pub(super) fn table(&mut self, from: usize, fields: &[(u16, TableField)]) -> [usize; FIELDS_MAX] {
        let slots = fields.iter().map(|(slot, _)| usize::from(*slot) + 1).max().unwrap_or(0);
        let vtable_len = 4 + slots * 2;
        self.align(ALIGN_MAX, vtable_len + 4);
        let vtable = self.out.len();
        self.out.resize(vtable + vtable_len, 0);
        let table = self.out.len();
        self.out.extend_from_slice(&u32::try_from(vtable_len).unwrap_or(0).to_le_bytes());
        let mut places = [0; FIELDS_MAX];
        for ((slot, field), place) in fields.iter().zip(&mut places) {
            self.align(field.size(), 0);
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

    /// Begins a vector of `count` items that the offset at `from` refers to.
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

    /// A vector of `count` numbers that are bytes already.
    pub(super) fn f64_bytes<'a>(&mut self, from: usize, count: usize, parts: impl Iterator<Item = &'a [u8]>) {
        self.list(from, count, 8);
        for part in parts {
            self.out.extend_from_slice(part);
        }
    }

    pub(super) fn f64s(&mut self, from: usize, count: usize, numbers: impl Iterator<Item = f64>) {
        self.list(from, count, 8);
        for number in numbers {
            self.out.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// A vector of offsets of objects that are written later. Returns the position of the first
    /// offset; the others follow every four bytes.
    pub(super) fn objects(&mut self, from: usize, count: usize) -> usize {
        self.list(from, count, 4);
        let first = self.out.len();
        self.out.resize(first + count * 4, 0);
        first
    }
}
