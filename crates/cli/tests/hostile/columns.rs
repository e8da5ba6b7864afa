//! GeoParquet: a footer that lies.

use std::io::Write;

use crate::{Case, bad};

/// Thrift's compact form, as far as a footer needs it.
#[derive(Default)]
struct Thrift {
    out: Vec<u8>,
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

fn zigzag(number: i64) -> Vec<u8> {
    varint(((number << 1) ^ (number >> 63)).cast_unsigned())
}

impl Thrift {
    /// A field, so many numbers after the one before; kinds: 5 i32, 6 i64, 8 text, 9 list, 12 struct.
    fn field(mut self, after: u8, kind: u8, value: &[u8]) -> Thrift {
        self.out.push(after << 4 | kind);
        self.out.extend(value);
        self
    }

    fn number(self, after: u8, number: i64) -> Thrift {
        self.field(after, if number.unsigned_abs() > 1 << 31 { 6 } else { 5 }, &zigzag(number))
    }

    fn text(self, after: u8, text: &str) -> Thrift {
        self.field(after, 8, &[varint(text.len() as u64), text.into()].concat())
    }

    fn stop(mut self) -> Vec<u8> {
        self.out.push(0);
        self.out
    }
}

fn list(kind: u8, count: u64, items: &[u8]) -> Vec<u8> {
    let mut out = if count < 15 {
        vec![(count as u8) << 4 | kind]
    } else {
        [vec![0xf0 | kind], varint(count)].concat()
    };
    out.extend(items);
    out
}

fn file(body: &[u8], footer: &[u8]) -> Vec<u8> {
    [&b"PAR1"[..], body, footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
}

fn group(name: &str, children: i64) -> Vec<u8> {
    Thrift::default().text(4, name).number(1, children).stop()
}

/// A leaf of bytes, required.
fn leaf(name: &str) -> Vec<u8> {
    Thrift::default().number(1, 6).number(2, 0).text(1, name).stop()
}

fn geo() -> Vec<u8> {
    let geo =
        r#"{"version":"1.1.0","primary_column":"g","columns":{"g":{"encoding":"WKB","geometry_types":[]}}}"#;
    list(12, 1, &Thrift::default().text(1, "geo").text(1, geo).stop())
}

/// A footer of this schema, so many rows and these groups.
fn footer(schema: &[u8], rows: i64, groups: &[u8]) -> Vec<u8> {
    Thrift::default()
        .number(1, 2)
        .field(1, 9, schema)
        .field(1, 6, &zigzag(rows))
        .field(1, 9, groups)
        .field(1, 9, &geo())
        .stop()
}

fn one_leaf() -> Vec<u8> {
    list(12, 2, &[group("schema", 1), leaf("g")].concat())
}

/// A group of one column.
fn groups(codec: i64, values: i64, packed: i64, size: i64, at: i64, rows: i64) -> Vec<u8> {
    let meta = Thrift::default()
        .number(1, 6)
        .field(1, 9, &list(5, 1, &zigzag(0)))
        .field(1, 9, &list(8, 1, &[varint(1), b"g".to_vec()].concat()))
        .field(1, 5, &zigzag(codec))
        .field(1, 6, &zigzag(values))
        .field(1, 6, &zigzag(size))
        .field(1, 6, &zigzag(packed))
        .field(2, 6, &zigzag(at))
        .stop();
    let column = Thrift::default().field(2, 6, &zigzag(at)).field(1, 12, &meta).stop();
    let group = Thrift::default()
        .field(1, 9, &list(12, 1, &column))
        .field(1, 6, &zigzag(size))
        .field(1, 6, &zigzag(rows))
        .stop();
    list(12, 1, &group)
}

/// A page of values of this stated size, of which these are there.
fn page(size: i64, packed: i64, values: i64, body: &[u8]) -> Vec<u8> {
    let data = Thrift::default().number(1, values).number(1, 0).number(1, 3).number(1, 3).stop();
    let head = Thrift::default()
        .number(1, 0)
        .field(1, 5, &zigzag(size))
        .field(1, 5, &zigzag(packed))
        .field(2, 12, &data);
    [head.stop(), body.to_vec()].concat()
}

fn of_page(codec: i64, page: &[u8], values: i64, size: i64, rows: i64) -> Vec<u8> {
    let groups = groups(codec, values, page.len() as i64, size, 4, rows);
    file(page, &footer(&one_leaf(), rows, &groups))
}

pub(crate) fn geoparquet() -> Vec<Case> {
    let nested: Vec<u8> = (0..20_000).flat_map(|_| group("a", 1)).chain(leaf("g")).collect();
    let wide: Vec<u8> = (0..40_000).flat_map(|n| leaf(&format!("c{n}"))).collect();
    let zeros = zeros(200);
    let value = |wkb: &[u8]| [&(wkb.len() as u32).to_le_bytes()[..], wkb].concat();
    let plain = |wkb: &[u8]| {
        let body = value(wkb);
        let page = page(body.len() as i64, body.len() as i64, 1, &body);
        of_page(0, &page, 1, page.len() as i64, 1)
    };
    let mut cases = vec![
        bad("magic.parquet", format!("PAR1{}\u{7f}\u{7f}\u{7f}\u{7f}PAR1", "\u{7f}".repeat(64))),
        bad("long.parquet", [&b"PAR1"[..], &[0; 64], &u32::MAX.to_le_bytes(), b"PAR1"].concat()),
        bad("encrypted.parquet", b"PAR1PARE\0\0\0\0PARE"),
        bad(
            "list.parquet",
            file(
                &[],
                &Thrift::default().number(1, 2).field(1, 9, &list(12, u64::from(u32::MAX) / 2, &[])).stop(),
            ),
        ),
        bad(
            "list_long.parquet",
            file(&[], &Thrift::default().number(1, 2).field(1, 9, &list(12, u64::MAX, &[])).stop()),
        ),
        bad("text.parquet", file(&[], &Thrift::default().field(1, 8, &varint(1 << 31)).stop())),
        bad("structs.parquet", file(&[], &[0x1c; 200_000])),
        bad("lists.parquet", file(&[], &[&[0x19][..], &[0x19; 200_000]].concat())),
        bad(
            "children.parquet",
            file(&[], &footer(&list(12, 1, &group("schema", i64::from(i32::MAX))), 0, &list(12, 0, &[]))),
        ),
        bad(
            "children_below.parquet",
            file(&[], &footer(&list(12, 1, &group("schema", -5)), 0, &list(12, 0, &[]))),
        ),
        bad("deep.parquet", file(&[], &footer(&list(12, 20_001, &nested), 0, &list(12, 0, &[])))),
        bad(
            "wide.parquet",
            file(
                &[],
                &footer(
                    &list(12, 40_002, &[group("schema", 40_001), leaf("g"), wide].concat()),
                    0,
                    &list(12, 0, &[]),
                ),
            ),
        ),
        bad("groups.parquet", file(&[], &footer(&one_leaf(), 5, &list(12, 1 << 31, &[])))),
        bad("rows.parquet", of_page(0, &page(4, 4, 1, &[0; 4]), 1, 100, i64::MAX)),
        bad("rows_below.parquet", of_page(0, &page(4, 4, 1, &[0; 4]), 1, 100, -7)),
        bad(
            "values.parquet",
            of_page(0, &page(4, 4, i64::from(i32::MAX), &[0; 4]), i64::MAX, 100, i64::from(i32::MAX)),
        ),
        bad(
            "page.parquet",
            of_page(0, &page(i64::from(i32::MAX), i64::from(i32::MAX), 1, &[0; 4]), 1, 100, 1),
        ),
        bad("page_below.parquet", of_page(0, &page(-1, -1, 1, &[0; 4]), 1, 100, 1)),
        bad(
            "bomb.parquet",
            of_page(6, &page(200 << 20, zeros.len() as i64, 50 << 20, &zeros), 50 << 20, 1 << 29, 50 << 20),
        ),
        bad(
            "bomb_lies.parquet",
            of_page(6, &page(200 << 20, zeros.len() as i64, 50 << 20, &zeros), 50 << 20, 100, 50 << 20),
        ),
        bad(
            "claim.parquet",
            of_page(6, &page(i64::from(i32::MAX), zeros.len() as i64, 1, &zeros), 1, 100, 1),
        ),
        bad("itself.parquet", file(&[0; 8], &footer(&one_leaf(), 1, &groups(0, 1, 1 << 40, 100, 4, 1)))),
        bad("before.parquet", file(&[0; 8], &footer(&one_leaf(), 1, &groups(0, 1, 8, 100, -8, 1)))),
        bad("beyond.parquet", file(&[0; 8], &footer(&one_leaf(), 1, &groups(0, 1, 8, 100, i64::MAX - 4, 1)))),
        bad("wkb_deep.parquet", plain(&crate::texts::deep_wkb(200_000))),
        bad("wkb_infinite.parquet", plain(&crate::texts::infinite_wkb())),
        bad("empty.parquet", ""),
        bad("short.parquet", "PAR1PAR1"),
    ];
    for (n, wkb) in crate::texts::huge_wkb().iter().enumerate() {
        cases.push(bad(&format!("wkb_huge_{n}.parquet"), plain(wkb)));
    }
    cases
}

/// So many megabytes of nothing, packed.
fn zeros(megabytes: usize) -> Vec<u8> {
    let mut out = zstd::Encoder::new(Vec::new(), 1).unwrap();
    (0..megabytes).for_each(|_| out.write_all(&[0; 1 << 20]).unwrap());
    out.finish().unwrap()
}
