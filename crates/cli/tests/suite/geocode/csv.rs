//! Files as people have them: a clear word for what is wrong, and every other row done.

use tidegate_chaos::Config;

use crate::geocode::bench::{Bench, Ran, chaos, run, run_with};

/// Geocodes these bytes; what came of it, and how many calls it cost.
fn geocode(bytes: &[u8], args: &[&str]) -> (Bench, Ran, u64) {
    let server = chaos(Config::default());
    let bench = Bench::of("in.csv", bytes);
    let ran = bench.geocode(&server.url(), args);
    (bench, ran, server.stats().requests)
}

/// Asserts that nothing was asked and nothing written, and that these words were said.
fn refused(bytes: &[u8], args: &[&str], words: &[&str]) {
    let (bench, ran, calls) = geocode(bytes, args);
    assert_eq!((ran.code, calls), (2, 0), "{}", ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "{word:?} is missing in {}", ran.stderr);
    }
    assert!(!bench.path("out.csv").exists());
    assert_eq!(ran.word("status"), "failed");
}

#[test]
fn a_file_that_cannot_be_used_is_refused_with_a_reason() {
    refused(b"id,adress\n1,a\n", &[], &["in.csv", "no column \"address\"", "did you mean \"adress\"?"]);
    refused(
        b"id,street\n1,a\n",
        &["--address", "street,town"],
        &["no column \"town\"", "expected one of id, street"],
    );
    refused(b"", &[], &["it is empty"]);
    refused(b"\n\n\n", &[], &["it is empty"]);
    refused(b"\xff\xfei\0d\0", &[], &["UTF-16"]);
    refused(b"id,address,id\n1,a,2\n", &[], &["two columns are named \"id\""]);
    refused(b"PK\x03\x04xxxx", &[], &["spreadsheet"]);
    refused(b"\x1f\x8bxxxx", &[], &["gzip"]);
    refused(b"id,addr\xdfess\n1,a\n", &[], &["header", "encoding"]);
}

#[test]
fn an_output_that_cannot_be_written_is_refused_before_anything_is_asked() {
    let good = b"id,address\n1,a\n";
    refused(good, &["-o", "in.csv"], &["in.csv is both input and output"]);
    refused(good, &["-o", "./in.csv"], &["both input and output"]);
    refused(good, &["-o", "out.xlsx"], &["out.xlsx", ".gpkg"]);
    refused(good, &["-o", "out"], &["out", ".gpkg"]);
    refused(good, &["-o", "nowhere/out.csv"], &["nowhere"]);
    refused(good, &["-o", "nowhere/out.gpkg"], &["nowhere"]);
    refused(good, &["--state", "in.csv"], &["in.csv"]);
}

#[test]
fn an_input_that_is_not_there() {
    let server = chaos(Config::default());
    let bench = Bench::new();
    let ran = bench.geocode(&server.url(), &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("in.csv"), "{}", ran.stderr);
    std::fs::create_dir(bench.path("in.csv")).unwrap();
    let ran = bench.geocode(&server.url(), &[]);
    assert!(ran.code == 2 && ran.stderr.contains("directory"), "{}", ran.stderr);
}

#[test]
fn a_header_alone_is_a_finished_job() {
    let (bench, ran, calls) = geocode(b"id,address\n", &[]);
    assert_eq!((ran.code, calls, ran.count("records")), (0, 0, 0), "{}", ran.stderr);
    assert_eq!(bench.out().len(), 0);
}

#[test]
fn bad_rows_are_named_and_the_others_done() {
    let mut bytes =
        b"id,address,note\n1,First,x\n2,Second\n3,Third,x,y\n4,Stra\xdfe,x\n5,,x\n6,Sixth,\xff\n7,\""
            .to_vec();
    bytes.resize(bytes.len() + 10_000_000, b'x');
    bytes.extend_from_slice(b"\",x\n8,Eighth,x\n9,\"Ninth,x\n10,Tenth,x\n");
    let (bench, ran, calls) = geocode(&bytes, &[]);
    assert_eq!((ran.code, ran.ends(), calls), (4, [4, 0, 6], 4), "{}", ran.stderr);
    let rows = bench.out();
    assert_eq!(bench.column("id"), ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    let told = [
        (1, "SCHEMA_MISMATCH", "row 2 (line 3): the row has 2 cells, the header 3"),
        (2, "SCHEMA_MISMATCH", "row 3 (line 4): the row has 4 cells, the header 3"),
        (3, "SCHEMA_MISMATCH", "row 4 (line 5), column \"address\": the cell is not text in this encoding"),
        (4, "BAD_REQUEST", "field \"address\": the address is empty"),
        (6, "SCHEMA_MISMATCH", "row 7 (line 8), column \"address\": the cell has 10000000 bytes"),
        (8, "SCHEMA_MISMATCH", "row 9 (line 10), column \"address\": the cell's quote is not closed"),
    ];
    for (row, code, words) in told {
        assert_eq!((rows[row]["outcome"].as_str(), rows[row]["error_code"].as_str()), ("failed", code));
        assert!(rows[row]["error"].contains(words), "{}", rows[row]["error"]);
        assert_eq!(rows[row]["attempts"], "0");
    }
    // What is wrong in a column that is not asked about does no harm.
    for row in [0, 5, 7, 9] {
        assert_eq!(rows[row]["outcome"], "matched", "{row}");
    }
}

#[test]
fn encodings_marks_delimiters_and_line_ends() {
    let plain = |bench: &Bench| (bench.column("label"), bench.column("outcome"));
    let matched = |label: &str| (vec![label.to_string()], vec!["matched".to_string()]);
    let (bench, ..) = geocode(b"\xef\xbb\xbfaddress,id\nRing 1,1\n", &[]);
    assert_eq!(plain(&bench), matched("Ring 1"));
    let (bench, ..) = geocode(b"id;address\r\n1;\"Ring; 1\"\r\n", &[]);
    assert_eq!(plain(&bench), matched("Ring; 1"));
    let (bench, ..) = geocode(b"id\taddress\n1\tRing, 1\n", &[]);
    assert_eq!(plain(&bench), matched("Ring, 1"));
    let (bench, ..) = geocode(b"id|address\r1|Ring 1\r", &["--delimiter", "|"]);
    assert_eq!(plain(&bench), matched("Ring 1"));
    let (bench, ..) = geocode(b"id,address\n1,Stra\xdfe\n", &["--encoding", "windows-1252"]);
    assert_eq!(plain(&bench), matched("Straße"));
    let (bench, ..) = geocode(b"id,address\n\n1,\"Ring\n1\"\n\n", &[]);
    assert_eq!(bench.out().len(), 1);
    let (_, ran, calls) = geocode(b"id,address\n1,a\n", &["--encoding", "utf-16le"]);
    assert_eq!((ran.code, calls), (2, 0));
}

#[test]
fn the_address_is_made_of_its_columns() {
    let bytes = b"Street,zip,City\nRing 1,1010,Wien\n Ring 2 ,,Wien\n";
    let (bench, ran, _) = geocode(bytes, &["--address", "street, zip,city"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(bench.column("label"), ["Ring 1, 1010, Wien", "Ring 2, Wien"]);
    // The cells themselves stay as they were.
    assert_eq!(bench.column("Street"), ["Ring 1", " Ring 2 "]);
}

#[test]
fn standard_input_will_do() {
    let server = chaos(Config::default());
    let bench = Bench::new();
    let url = server.url();
    let args = ["-", "--address", "address", "--url", &url, "-o", "out.csv", "--quiet", "--format", "json"];
    let ran = run_with(&mut bench.bare(&args), b"id,address\n1,\"open\n2,Second\n3,Third\n");
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    // Small enough to go back in: the quote costs one row.
    assert_eq!(ran.ends(), [2, 0, 1]);
    assert_eq!(bench.column("id"), ["1", "2", "3"]);
    let ran = run(&mut bench.bare(&args));
    assert!(ran.code == 2 && ran.stderr.contains("empty"), "{}", ran.stderr);
}
