//! The protobuf wire format: varints, fixed 64-bit values, and length-delimited fields.

/// A message being written.
#[derive(Default)]
pub(super) struct Proto(Vec<u8>);

impl Proto {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn tag(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    pub(super) fn int(&mut self, field: u32, n: i64) {
        self.tag(field, 0);
        self.varint(n as u64);
    }

    pub(super) fn fixed64(&mut self, field: u32, n: u64) {
        self.tag(field, 1);
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    pub(super) fn double(&mut self, field: u32, x: f64) {
        self.fixed64(field, x.to_bits());
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// A packed field of fixed 64-bit values.
    pub(super) fn packed(&mut self, field: u32, numbers: impl ExactSizeIterator<Item = u64>) {
        self.tag(field, 2);
        self.varint(numbers.len() as u64 * 8);
        numbers.for_each(|n| self.0.extend_from_slice(&n.to_le_bytes()));
    }

    /// An embedded message. Its length precedes it but is known only afterwards: four bytes are
    /// reserved, as a varint may be padded.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Proto)) {
        self.tag(field, 2);
        let at = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        write(self);
        let length = self.0.len() - at - 4;
        // The limit of 2^28 bytes is more than a collector accepts; exports are split long before.
        let bytes = [
            (length & 0x7f) as u8 | 0x80,
            (length >> 7 & 0x7f) as u8 | 0x80,
            (length >> 14 & 0x7f) as u8 | 0x80,
            (length >> 21 & 0x7f) as u8,
        ];
        if let Some(place) = self.0.get_mut(at..at + 4) {
            place.copy_from_slice(&bytes);
        }
    }
}
