//! Rows out of bytes, good ones and bad ones.

use super::{CsvOptions, CsvRow, Lexer, Rewind, RowProblem, RowReader};
use proptest::prelude::*;
use std::io::{self, Cursor, Read};

fn read(text: &[u8], options: &CsvOptions) -> Vec<(u64, u64, Vec<String>, Option<RowProblem>)> {
    let mut csv = RowReader::open(Cursor::new(text.to_vec()), options).unwrap();
    let (mut row, mut out) = (CsvRow::default(), Vec::new());
    while csv.read(&mut row).unwrap() {
        let cells = row.cells().map(str::to_string).collect();
        out.push((row.number, row.line, cells, row.problem.clone()));
    }
    out
}

fn cells(text: &str) -> Vec<Vec<String>> {
    read(text.as_bytes(), &CsvOptions::default()).into_iter().map(|r| r.2).collect()
}

#[test]
fn plain_quoted_and_blank() {
    let text = "\u{feff}id,name\r\n1,\"Main St, 5\"\n\n2,\"say \"\"hi\"\"\"\r3,\"two\nlines\"\n4,x";
    assert_eq!(cells(text), [["1", "Main St, 5"], ["2", "say \"hi\""], ["3", "two\nlines"], ["4", "x"]]);
    let lines: Vec<u64> = read(text.as_bytes(), &CsvOptions::default()).iter().map(|r| r.1).collect();
    assert_eq!(lines, [2, 4, 5, 7]);
}

#[test]
fn delimiters_are_guessed() {
    assert_eq!(cells("a;b\n1,5;2\n"), [["1,5", "2"]]);
    assert_eq!(cells("a\tb\n1\t2\n"), [["1", "2"]]);
    assert_eq!(cells("\"a;x\",b\n1,2\n"), [["1", "2"]]);
    assert_eq!(cells("only\nx\n"), [["x"]]);
}

#[test]
fn a_bad_row_does_not_take_its_neighbours() {
    let text = b"id,name\n1,a\n2\n3,b,c\n4,\xff\xfe\n5,d\n";
    let rows = read(text, &CsvOptions::default());
    let problems: Vec<_> = rows.iter().map(|r| r.3.clone()).collect();
    assert_eq!(
        problems,
        [
            None,
            Some(RowProblem::CellCount { found: 1, expected: 2 }),
            Some(RowProblem::CellCount { found: 3, expected: 2 }),
            Some(RowProblem::NotText { column: 1 }),
            None,
        ]
    );
    assert_eq!(rows[4].2, ["5", "d"]);
    let latin = CsvOptions { encoding: encoding_rs::WINDOWS_1252, ..CsvOptions::default() };
    assert_eq!(read(b"a,b\n1,Stra\xdfe\n", &latin)[0].2, ["1", "Straße"]);
}

#[test]
fn a_huge_cell_is_skipped_in_its_own_row() {
    let mut text = b"id,name\n1,\"".to_vec();
    text.resize(text.len() + 10_000_000, b'x');
    text.extend_from_slice(b"\ny\"\n2,ok\n3,");
    text.resize(text.len() + 2_000_000, b'z');
    text.extend_from_slice(b"\n4,fine\n");
    let rows = read(&text, &CsvOptions::default());
    assert_eq!(rows[0].3, Some(RowProblem::CellTooLarge { column: 1, bytes: 10_000_002 }));
    assert_eq!((rows[1].2.clone(), rows[1].3.clone()), (vec!["2".into(), "ok".into()], None));
    assert_eq!(rows[2].3, Some(RowProblem::CellTooLarge { column: 1, bytes: 2_000_000 }));
    assert_eq!(rows[3].2, ["4", "fine"]);
    assert_eq!(rows.len(), 4);
}

#[test]
fn an_unclosed_quote_costs_one_row() {
    let mut text = String::from("id,name\n1,a\n2,\"open\n");
    for i in 3..50_000 {
        text.push_str(&format!("{i},name {i}\n"));
    }
    let rows = read(text.as_bytes(), &CsvOptions::default());
    assert_eq!(rows.len(), 49_999);
    assert_eq!(rows[1].3, Some(RowProblem::QuoteNotClosed { column: 1 }));
    assert!(rows.iter().enumerate().all(|(i, r)| i == 1 || r.3.is_none()));
    assert_eq!(rows[49_998].2, ["49999", "name 49999"]);
    assert_eq!(rows[49_998].1, 50_000);
}

#[test]
fn what_is_not_csv_is_said() {
    let open = |bytes: &[u8]| {
        RowReader::open(Cursor::new(bytes.to_vec()), &CsvOptions::default()).unwrap_err().to_string()
    };
    assert!(open(b"").contains("empty"));
    assert!(open(b"PK\x03\x04...").contains("zip"));
    assert!(open(b"\xff\xfea\0").contains("UTF-16"));
    assert!(open(b"a,b,a\n").contains("\"a\""));
    assert!(open(b"a,\xff\n").contains("encoding"));
}

#[test]
fn a_row_over_the_limit_costs_itself() {
    let options = CsvOptions { row_max: 10, ..CsvOptions::default() };
    let rows = read(b"a,b\n1,2\n3,4,5,6,7,8,9\n5,6\n", &options);
    assert_eq!(rows[1].3, Some(RowProblem::RowTooLarge { bytes: 13 }));
    assert_eq!(
        (rows.len(), rows[2].2.as_slice(), &rows[2].3),
        (3, &["5".to_string(), "6".into()][..], &None)
    );
}

#[test]
fn a_quoted_empty_cell_is_not_a_blank_line() {
    assert_eq!(cells("a\n\"\"\n\nx\n"), [[""], ["x"]]);
}

/// The rows' own bytes with their offsets, by a reader that gives a few bytes at a time.
fn sources(text: &[u8]) -> Vec<(u64, Vec<u8>)> {
    struct Drip(Cursor<Vec<u8>>);
    impl Read for Drip {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let len = buf.len().min(3);
            self.0.read(&mut buf[..len])
        }
    }
    impl Rewind for Drip {
        fn rewind_to(&mut self, offset: u64) -> io::Result<()> {
            self.0.rewind_to(offset)
        }
    }
    let options = CsvOptions { keep_source: true, delimiter: Some(b','), ..CsvOptions::default() };
    let mut lexer = Lexer::open(Drip(Cursor::new(text.to_vec())), &options).unwrap();
    let mut out = Vec::new();
    while lexer.advance().unwrap() {
        let row = lexer.record();
        assert_eq!(row.len, row.source.len() as u64);
        out.push((row.offset, row.source.clone()));
    }
    out
}

#[test]
fn the_source_of_a_row_is_kept_as_it_stands() {
    let text = b"id,name\r\n1,\"a \"\"b\"\"\nc\"\r\n\r\n22,\"open, never closed\n333,end";
    let found = sources(text);
    let rows: [&[u8]; 4] = [b"id,name", b"1,\"a \"\"b\"\"\nc\"", b"22,\"open, never closed", b"333,end"];
    assert_eq!(found.iter().map(|row| row.1.as_slice()).collect::<Vec<_>>(), rows);
    for (offset, row) in &found {
        assert_eq!(&text[*offset as usize..][..row.len()], row);
    }
}

proptest! {
    /// Total, and no line of plain input is lost.
    #[test]
    fn any_bytes_can_be_read(text in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(mut csv) = RowReader::open(Cursor::new(text.clone()), &CsvOptions { cell_max: 20, ..CsvOptions::default() }) {
            let (mut row, mut rows) = (CsvRow::default(), 0);
            while csv.read(&mut row).unwrap() {
                rows += 1;
                prop_assert!(rows <= text.len());
            }
        }
    }

    /// What is written by the rules is read back.
    #[test]
    fn round_trip(rows in prop::collection::vec(prop::collection::vec("[a-z\",\n\r é]{0,8}", 3), 0..20)) {
        let mut text = String::from("a,b,c\n");
        for row in &rows {
            let quoted: Vec<String> = row.iter().map(|c| format!("\"{}\"", c.replace('"', "\"\""))).collect();
            text.push_str(&quoted.join(","));
            text.push('\n');
        }
        prop_assert_eq!(cells(&text), rows);
    }

    /// Each row's source is what lies at its offset, and nothing but line ends lies between rows.
    #[test]
    fn nothing_lies_between_the_sources(text in "[a,\"\n\r]{1,60}") {
        let mut end = 0;
        for (offset, row) in sources(text.as_bytes()) {
            let from = offset as usize;
            prop_assert!(text.as_bytes()[end..from].iter().all(|b| matches!(b, b'\n' | b'\r')));
            prop_assert_eq!(&text.as_bytes()[from..from + row.len()], row.as_slice());
            end = from + row.len();
        }
        prop_assert!(text.as_bytes()[end..].iter().all(|b| matches!(b, b'\n' | b'\r')));
    }
}
