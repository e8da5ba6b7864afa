//! Addresses that a stranger wrote into tasks and records: nothing is asked that a person did not allow.

use crate::canned::Canned;

use crate::strangers::{Bench, SeenLetter, feature, raster};

const REFUSED: &str = "OBJECT_NOT_ALLOWED";

/// A server that has one file of features for whoever asks, as a web server and as a bucket.
fn server() -> Canned {
    Canned::start(|_| {
        let head = "200 OK\r\nContent-Type: application/geo+json-seq\r\nETag: \"a\"\r\nLast-Modified: Thu, 19 Nov 2026 10:00:00 GMT";
        format!("{head}\r\n\r\n{}\n", feature(7))
    })
}

/// All must be refused, with these words.
fn all_refused(objects: &[&str], letters: &[Option<SeenLetter>], code: &str) {
    for (object, letter) in objects.iter().zip(letters) {
        let letter = letter.as_ref().unwrap_or_else(|| panic!("{object} was opened"));
        assert_eq!(letter.code, code, "{object}: {}", letter.message);
    }
}

/// The manifest allows nothing: no server is asked, not even the one whose address is a number.
#[test]
fn the_object_of_a_task_is_not_asked_for() {
    let (bench, server) = (Bench::new(), server());
    let port = server.port();
    let store = format!(", store: {{ endpoint: \"{}\", credentials: environment }}", server.url());
    bench.queue("", &store);
    let own = format!("http://127.0.0.1:{port}/x.geojsonl");
    let objects: Vec<String> = vec![
        own.clone(),
        format!("HTTP://127.0.0.1:{port}/x.geojsonl"),
        format!("http://localhost:{port}/x.geojsonl"),
        format!("http://2130706433:{port}/x.geojsonl"),
        format!("http://0177.0.0.1:{port}/x.geojsonl"),
        format!("http://0x7f.1:{port}/x.geojsonl"),
        format!("http://[::1]:{port}/x.geojsonl"),
        format!("http://[::ffff:127.0.0.1]:{port}/x.geojsonl"),
        "s3://someone-elses-bucket/x.geojsonl".into(),
        "az://someone-elses-bucket/x.geojsonl".into(),
        "gs://someone-elses-bucket/x.geojsonl".into(),
        "ftp://127.0.0.1/x.geojsonl".into(),
        "file:///etc/passwd".into(),
    ];
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    let letters = bench.work(&objects);
    all_refused(&objects, &letters, REFUSED);
    assert_eq!((server.connections(), bench.rows()), (0, 0));
    let said = |at: usize| letters[at].as_ref().unwrap().message.clone();
    assert!(
        said(0).contains(&format!("`objects: {{ hosts: [\"127.0.0.1:{port}\"] }}` in `source.tasks`")),
        "{}",
        said(0)
    );
    assert!(said(8).contains("`objects: { buckets: [\"s3://someone-elses-bucket\"] }`"), "{}", said(8));

    // An event of CloudEvents is a task too.
    let event = serde_json::json!({
        "specversion": "1.0", "type": "p", "id": "event", "source": "x", "tgobject": own,
    });
    bench.write("event.ndjson", &format!("{event}\n"));
    assert_eq!(bench.run(&["submit", "m.yaml", "--tasks", "event.ndjson"]).code, 0);
    assert_eq!(bench.run(&["worker", "m.yaml", "--once"]).code, 4);
    let letters = bench.letters();
    assert!(
        letters.iter().any(|(about, letter)| about == "task event" && letter.code == REFUSED),
        "{letters:?}"
    );
    assert_eq!(server.connections(), 0);

    // What the message says is what helps.
    bench.queue(&format!("{{ hosts: [\"127.0.0.1:{port}\"] }}"), "");
    bench.write("again.ndjson", &format!("{{\"key\":\"again\",\"object\":\"{own}\"}}\n"));
    assert_eq!(bench.run(&["submit", "m.yaml", "--tasks", "again.ndjson"]).code, 0);
    let ended = bench.run(&["worker", "m.yaml", "--once"]);
    assert_eq!((ended.code, bench.rows()), (0, 1), "{}", ended.said);
}

/// A host is allowed at its port and under its name, and nothing that looks like it.
#[test]
fn other_hosts_ports_and_names_are_not_asked() {
    let (bench, server) = (Bench::new(), server());
    let port = server.port();
    bench.queue(
        &format!("{{ hosts: [\"127.0.0.1:{port}\", localhost, data.example.org, \"127.0.0.9\"] }}"),
        "",
    );
    let good = [
        format!("http://127.0.0.1:{port}/x.geojsonl"),
        format!("http://2130706433:{port}/y.geojsonl"),
        format!("http://0x7f000001:{port}/z.geojsonl"),
    ];
    let bad = [
        format!("http://127.0.0.2:{port}/x.geojsonl"),
        format!("http://localhost:{port}/x.geojsonl"),
        format!("http://[::ffff:127.0.0.1]:{port}/x.geojsonl"),
        format!("http://data.example.org@127.0.0.1:{port}/x.geojsonl"),
        format!("http://127.0.0.1:{port}@data.example.org:{port}/x.geojsonl"),
        format!("http://data.example.org:{port}/x.geojsonl"),
        format!("http://data.example.org.127.0.0.1.nip.test:{port}/x.geojsonl"),
        // Allowed, but private, and not written out with its port.
        "http://localhost/x.geojsonl".into(),
        "http://127.0.0.9/x.geojsonl".into(),
    ];
    let all: Vec<&str> = good.iter().chain(&bad).map(String::as_str).collect();
    let letters = bench.work(&all);
    assert!(letters[..good.len()].iter().all(Option::is_none), "{letters:?}");
    all_refused(&all[good.len()..], &letters[good.len()..], REFUSED);
    assert_eq!(server.seen().len(), good.len());
}

/// A name that resolves to this machine counts as written out only with its port.
#[test]
fn localhost_is_asked_if_its_port_is_written_out() {
    let server = server();
    let port = server.port();
    for (objects, is_opened) in [
        ("{ hosts: [localhost] }".to_owned(), false),
        ("{ hosts: [localhost], allow_private: true }".to_owned(), false),
        ("{ hosts: [\"*.localhost\"] }".to_owned(), false),
        (format!("{{ hosts: [\"localhost:{port}\"] }}"), true),
    ] {
        let bench = Bench::new();
        bench.queue(&objects, "");
        let letters = bench.work(&[&format!("http://LOCALHOST:{port}/x.geojsonl")]);
        assert_eq!(letters[0].is_none(), is_opened, "{objects}: {letters:?}");
    }
    assert_eq!(server.seen().len(), 1);
}

/// A server that is allowed leads to one that is not, and to one that is.
#[test]
fn a_redirect_stays_on_its_host() {
    let inner = server();
    let (to, port) = (inner.url(), inner.port());
    let outer = Canned::start(move |head| {
        if head.starts_with("GET /away") {
            return format!("302 Found\r\nLocation: {to}/x.geojsonl\r\n\r\n");
        }
        if head.starts_with("GET /here") {
            return "302 Found\r\nLocation: /x.geojsonl\r\n\r\n".into();
        }
        format!("200 OK\r\nContent-Type: application/geo+json-seq\r\n\r\n{}\n", feature(8))
    });
    let own = outer.port();
    for objects in [
        format!("{{ hosts: [\"127.0.0.1:{own}\"] }}"),
        format!("{{ hosts: [\"127.0.0.1:{own}\", \"127.0.0.1:{port}\"], allow_private: true }}"),
    ] {
        let bench = Bench::new();
        bench.queue(&objects, "");
        let letters = bench
            .work(&[&format!("{}/away.geojsonl", outer.url()), &format!("{}/here.geojsonl", outer.url())]);
        let code = letters[0].as_ref().map(|letter| letter.code.as_str());
        assert_eq!(code, Some("HOST_NOT_ALLOWED"), "{letters:?}");
        assert!(letters[1].is_none(), "{letters:?}");
    }
    assert_eq!(inner.connections(), 0);
}

/// Our signature goes to the buckets that a person named, and to this part of them.
#[test]
fn other_buckets_are_not_asked_with_our_signature() {
    let (bench, server) = (Bench::new(), server());
    let store = format!(", store: {{ endpoint: \"{}\", credentials: environment }}", server.url());
    bench.queue("{ buckets: [\"s3://mine/allowed\"] }", &store);
    let objects = [
        "s3://mine/allowed/x.geojsonl",
        "s3://mine/allowed/../other/x.geojsonl",
        "s3://mine/allowed/%2e%2e/other/x.geojsonl",
        "s3://mine/allowed/%252e%252e/other/x.geojsonl",
        "s3://mine/allowed2/x.geojsonl",
        "s3://mine/x.geojsonl",
        "s3://Mine/allowed/x.geojsonl",
        "s3://theirs/allowed/x.geojsonl",
        "S3://mine/allowed/x.geojsonl",
        "az://mine/allowed/x.geojsonl",
        "gs://mine/allowed/x.geojsonl",
        "s3://mine",
        "s3:///allowed/x.geojsonl",
    ];
    let letters = bench.work(&objects);
    assert!(letters[0].is_none(), "{letters:?}");
    all_refused(&objects[1..], &letters[1..], REFUSED);
    let seen = server.seen();
    assert!(seen.iter().all(|head| head.starts_with("GET /mine/allowed/x.geojsonl ")), "{seen:?}");
    assert!(seen[0].contains("AKIAOURKEY"), "the allowed one is signed: {seen:?}");
}

/// The same rule for a field of a record: what a step `raster` reads.
#[test]
fn the_address_of_a_raster_is_not_asked_for() {
    let (bench, server) = (Bench::new(), server());
    raster(&bench.path("scene.tif"));
    let url = server.url();
    let addresses = [
        format!("{url}/scene.tif"),
        "s3://theirs/scene.tif".into(),
        format!("http://0x7f.1:{}/a.tif", server.port()),
    ];
    let records: String = addresses
        .iter()
        .enumerate()
        .map(|(n, path)| {
            format!("{{\"type\":\"Feature\",\"geometry\":null,\"properties\":{{\"id\":{n},\"path\":\"{path}\"}}}}\n")
        })
        .collect();
    bench.write("records.geojsonl", &records);
    let step = |more: &str| {
        let store = format!("store: {{ endpoint: \"{url}\", credentials: environment }}");
        format!("steps: [{{ raster: {{ cog: true, output: out, {store}{more} }} }}]")
    };
    let sink = "sink: { file: out.gpkg, key: [id] }";
    bench.manifest(&["source: { file: records.geojsonl }", &step(""), sink]);
    let ended = bench.run(&["run", "m.yaml"]);
    assert_eq!(ended.code, 4, "{}", ended.said);
    let letters = bench.letters();
    assert_eq!(letters.len(), addresses.len());
    for (about, letter) in &letters {
        assert_eq!(letter.code, REFUSED, "{about}: {}", letter.message);
        assert!(letter.message.contains("in `steps[0].raster`"), "{}", letter.message);
    }
    assert_eq!(server.connections(), 0);
    // Allowed, it is asked for, and is no raster.
    let more = format!(", objects: {{ hosts: [\"127.0.0.1:{}\"] }}", server.port());
    bench.manifest(&["source: { file: records.geojsonl }", &step(&more), sink]);
    bench.run(&["run", "m.yaml"]);
    assert!(server.connections() > 0);
}

/// A value that would lead the request of a step `http` elsewhere is not sent.
#[test]
fn a_value_does_not_climb_out_of_the_path_of_a_service() {
    let bench = Bench::new();
    let server = Canned::start(|_| crate::canned::json("200 OK", r#"{"name":"owner"}"#));
    let good = ["7", "12/3", "a b", "50 %", "...", "ü"];
    let bad = [
        ".",
        "..",
        "../..",
        "%2e%2e",
        ".%2E",
        "%2E%2e",
        "..%2F..",
        "%2F..",
        "x/../../y",
        "..\\..",
        "a\\b",
        "%5c..",
        "%252e%252e",
        "a%2Fb",
        "..;x",
    ];
    let records: String = good
        .iter()
        .chain(&bad)
        .map(|id| {
            let record =
                serde_json::json!({ "type": "Feature", "geometry": null, "properties": { "id": id } });
            format!("{record}\n")
        })
        .collect();
    bench.write("records.geojsonl", &records);
    for (base, path, prefix, query) in [
        ("", "/tenant/42/items/{id}/owner", "/tenant/42/items/", ""),
        ("/tenant/42/", "/items/{id}/owner", "/tenant/42/items/", ""),
        // What a person wrote behind the path of the service stays behind it.
        ("/tenant/42?lang=k", "/items/{id}/owner", "/tenant/42/items/", "?lang=k"),
        ("/tenant/42?lang=k", "/items/{id}/owner?full=1", "/tenant/42/items/", "?lang=k&full=1"),
    ] {
        let before = server.seen().len();
        bench.anew();
        let service = format!("services: {{ s: {{ url: \"{}{base}\", cache: false }} }}", server.url());
        let step =
            format!("steps: [{{ http: {{ service: s, path: \"{path}\", take: {{ owner: /name }} }} }}]");
        bench.manifest(&[
            &service,
            "source: { file: records.geojsonl }",
            &step,
            "sink: { file: out.geojsonl }",
        ]);
        let ended = bench.run(&["run", "m.yaml"]);
        assert_eq!(ended.code, 4, "{}", ended.said);
        let seen = server.seen().split_off(before);
        assert_eq!(seen.len(), good.len(), "{seen:?}");
        for head in &seen {
            let target = head.split(' ').nth(1).unwrap();
            assert!(target.starts_with(prefix) && target.ends_with(&format!("/owner{query}")), "{target}");
        }
        let letters = bench.letters();
        assert_eq!(letters.len(), bad.len());
        assert!(letters.iter().all(|(_, letter)| letter.code == "PATH_NOT_ALLOWED"), "{letters:?}");
    }
}

/// The same for an address in the path of a geocoder.
#[test]
fn an_address_does_not_climb_out_of_the_path_of_a_geocoder() {
    let (bench, server) = (Bench::new(), Canned::matching());
    bench.write("records.csv", "id,street\n1,Main Street 1/2\n2,..\n3,%2e%2e\n");
    let service =
        format!("services: {{ g: {{ url: \"{}/find/{{address}}/here\", profile: generic }} }}", server.url());
    let step = "steps: [{ geocode: { service: g, address: [street] } }]";
    bench.manifest(&[
        &service,
        "source: { file: records.csv, csv: {} }",
        step,
        "sink: { file: out.gpkg, key: [id] }",
    ]);
    let ended = bench.run(&["run", "m.yaml"]);
    assert_eq!(ended.code, 4, "{}", ended.said);
    let seen = server.seen();
    assert!(seen.len() == 1 && seen[0].starts_with("GET /find/Main%20Street%201%2F2/here"), "{seen:?}");
    assert!(bench.letters().iter().all(|(_, letter)| letter.code == "PATH_NOT_ALLOWED"));
}

/// `validate` and `plan` say what may be opened, and refuse what could never match.
#[test]
fn the_manifest_says_what_may_be_opened() {
    let bench = Bench::new();
    bench.queue("", "");
    for verb in ["validate", "plan"] {
        let ended = bench.run(&[verb, "m.yaml"]);
        assert!(
            ended.code == 0 && ended.said.contains("nothing may be opened (source.tasks)"),
            "{}",
            ended.said
        );
    }
    bench.queue("{ folder: scenes, hosts: [\"10.0.0.1:80\"], buckets: [\"s3://b/p\"] }", "");
    for verb in ["validate", "plan"] {
        let ended = bench.run(&[verb, "m.yaml"]);
        let words = "folder scenes, host 10.0.0.1:80, s3://b/p (source.tasks)";
        assert!(ended.code == 0 && ended.said.contains(words), "{}", ended.said);
    }
    for (objects, word) in [
        ("{ hosts: [\"http://a.test/x\"] }", "is not a host"),
        ("{ hosts: [\"a.test:http\"] }", "is not a host"),
        ("{ buckets: [scenes] }", "is not the address of a bucket"),
        ("{ buckets: [\"s3://b/../c\"] }", "is not the address of a bucket"),
        ("{ folders: [a] }", "did you mean `folder`"),
    ] {
        bench.queue(objects, "");
        let ended = bench.run(&["validate", "m.yaml"]);
        assert!(ended.code == 2 && ended.said.contains(word), "{objects}: {}", ended.said);
    }
}

/// What may be opened can change while the tasks of a queue are worked on.
#[test]
fn another_allowance_is_no_other_pipeline() {
    let bench = Bench::new();
    bench.write("a/1.geojsonl", &feature(1));
    bench.write("b/2.geojsonl", &feature(2));
    bench.queue("{ folder: a }", "");
    assert!(bench.work(&["a/1.geojsonl"])[0].is_none());
    bench.queue("{ folder: b }", "");
    bench.write("tasks.ndjson", "{\"key\":\"b\",\"object\":\"b/2.geojsonl\"}\n");
    assert_eq!(bench.run(&["submit", "m.yaml", "--tasks", "tasks.ndjson"]).code, 0);
    let ended = bench.run(&["worker", "m.yaml", "--once"]);
    assert_eq!((ended.code, bench.rows()), (0, 2), "{}", ended.said);
}
