//! A table of an untrusted FlatBuffer: every offset is checked, and a field outside of the buffer counts as
//! absent.

/// A table, by its position in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlatTable<'a> {
    buffer: &'a [u8],
    at: usize,
}

fn take<const N: usize>(buffer: &[u8], at: usize) -> Option<[u8; N]> {
    buffer.get(at..)?.first_chunk().copied()
}

fn u32_at(buffer: &[u8], at: usize) -> Option<usize> {
    take(buffer, at).map(|bytes| u32::from_le_bytes(bytes) as usize)
}

impl<'a> FlatTable<'a> {
    /// The root of a buffer.
    pub(super) fn root(buffer: &'a [u8]) -> Option<FlatTable<'a>> {
        FlatTable::at(buffer, u32_at(buffer, 0)?)
    }

    /// The table at a position, if it and its vtable lie in the buffer.
    fn at(buffer: &'a [u8], at: usize) -> Option<FlatTable<'a>> {
        let table = FlatTable { buffer, at };
        let (vtable, vtable_len) = table.vtable()?;
        (vtable_len >= 4 && buffer.len() >= vtable.checked_add(vtable_len)?).then_some(table)
    }

    /// Position and length of the vtable.
    fn vtable(&self) -> Option<(usize, usize)> {
        let back = i64::from(i32::from_le_bytes(take(self.buffer, self.at)?));
        let vtable = usize::try_from((self.at as i64).checked_sub(back)?).ok()?;
        Some((vtable, usize::from(u16::from_le_bytes(take(self.buffer, vtable)?))))
    }

    fn field(&self, slot: usize) -> Option<usize> {
        let (vtable, vtable_len) = self.vtable()?;
        let entry = 4 + slot * 2;
        if entry + 2 > vtable_len {
            return None;
        }
        match u16::from_le_bytes(take(self.buffer, vtable.checked_add(entry)?)?) {
            0 => None,
            offset => self.at.checked_add(offset.into()),
        }
    }

    pub(super) fn u8(&self, slot: usize) -> Option<u8> {
        self.field(slot).and_then(|at| self.buffer.get(at)).copied()
    }

    pub(super) fn u16(&self, slot: usize) -> Option<u16> {
        self.field(slot).and_then(|at| take(self.buffer, at)).map(u16::from_le_bytes)
    }

    pub(super) fn i32(&self, slot: usize) -> Option<i32> {
        self.field(slot).and_then(|at| take(self.buffer, at)).map(i32::from_le_bytes)
    }

    pub(super) fn u64(&self, slot: usize) -> Option<u64> {
        self.field(slot).and_then(|at| take(self.buffer, at)).map(u64::from_le_bytes)
    }

    /// The position that a field refers to.
    fn target(&self, slot: usize) -> Option<usize> {
        let at = self.field(slot)?;
        at.checked_add(u32_at(self.buffer, at)?)
    }

    /// The table that a field refers to; `None` without the field, `Some(None)` if it is out of range.
    pub(super) fn table(&self, slot: usize) -> Option<Option<FlatTable<'a>>> {
        self.field(slot).map(|_| self.target(slot).and_then(|at| FlatTable::at(self.buffer, at)))
    }

    /// The bytes of a vector of items of this size; empty if it is absent or out of range.
    fn list(&self, slot: usize, size: usize) -> (usize, &'a [u8]) {
        let found = self.target(slot).and_then(|at| {
            let len = u32_at(self.buffer, at)?.checked_mul(size)?;
            let start = at.checked_add(4)?;
            Some((start, self.buffer.get(start..start.checked_add(len)?)?))
        });
        found.unwrap_or((0, &[]))
    }

    pub(super) fn bytes(&self, slot: usize) -> Option<&'a [u8]> {
        self.target(slot).map(|_| self.list(slot, 1).1)
    }

    pub(super) fn text(&self, slot: usize) -> Option<&'a str> {
        self.bytes(slot).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// The bytes of a vector of doubles.
    pub(super) fn f64s(&self, slot: usize) -> &'a [u8] {
        self.list(slot, 8).1
    }

    pub(super) fn u32s(&self, slot: usize) -> impl Iterator<Item = u32> + 'a {
        let (_, bytes) = self.list(slot, 4);
        bytes.chunks_exact(4).map(|item| u32::from_le_bytes(item.try_into().unwrap_or_default()))
    }

    /// The tables of a vector; `None` for one that is out of range.
    pub(super) fn tables(&self, slot: usize) -> impl Iterator<Item = Option<FlatTable<'a>>> + 'a {
        let (start, bytes) = self.list(slot, 4);
        let buffer = self.buffer;
        bytes.chunks_exact(4).enumerate().map(move |(at, item)| {
            let place = start + at * 4;
            let to = u32::from_le_bytes(item.try_into().ok()?) as usize;
            FlatTable::at(buffer, place.checked_add(to)?)
        })
    }
}
