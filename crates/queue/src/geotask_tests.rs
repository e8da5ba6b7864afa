#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use super::*;
use proptest::prelude::*;

const LARGE: u64 = 1 << 20;

fn refused(body: &str) -> (String, String) {
    let error = Geotask::parse(body.as_bytes()).unwrap_err();
    (error.code.to_string(), error.message)
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (body, says) in [
        ("", "the message is empty"),
        ("[1]", "must start with `{`"),
        ("{", "line 1 column 1"),
        ("{\n \"kind\": 1}", "line 2 column 10"),
        ("{\"kind\":\"a\",\"key\":\"b\",\"payload\":{},\"keyy\":1}", "unknown field `keyy`"),
        ("{\"kind\":\"a\",\"kind\":\"a\"}", "duplicate field `kind`"),
        ("{\"key\":\"b\",\"payload\":{}}", "missing field `kind`"),
        ("{\"kind\":\"a\",\"payload\":{}}", "missing field `key`"),
        ("{\"kind\":\"a\",\"key\":\"\",\"payload\":{}}", "`key` is empty"),
        ("{\"kind\":\"a\",\"key\":\"b\\u0007\",\"payload\":{}}", "U+0007) at byte 1"),
        ("{\"kind\":\"a\",\"key\":\"b\"}", "neither `payload` nor `object`"),
        ("{\"kind\":\"a\",\"key\":\"b\",\"payload\":null}", "neither `payload`"),
        ("{\"kind\":\"a\",\"key\":\"b\",\"payload\":[]}", "`payload` must be a GeoJSON"),
        ("{\"kind\":\"a\",\"key\":\"b\",\"payload\":{},\"object\":\"x\"}", "both given"),
        ("{\"kind\":\"a\",\"key\":\"b\",\"payload\":{},\"priority\":10}", "expected 0 to 9"),
        (
            "{\"kind\":\"a\",\"key\":\"b\",\"payload\":{},\"not_before\":\"tomorrow\"}",
            "`not_before` is \"tomorrow\"",
        ),
        (
            "{\"kind\":\"a\",\"key\":\"b\",\"payload\":{},\"not_before\":\"2026-11-17T00:00:00Z\",\"expires\":\"2026-11-17T01:00:00+01:00\"}",
            "could never be worked on",
        ),
        ("{\"kind\":\"a\",\"key\":\"b\",\"payload\":{},\"bbox\":[0,0,181,1]}", "`bbox` is"),
        ("{\"kind\":\"a\",\"key\":\"b\",\"payload\":{},\"bbox\":[0,2,1,1]}", "its south"),
        ("{\"kind\":\"a\",\"key\":\"b\",\"payload\":{},\"bbox\":[0,2,1]}", "line 1 column 49"),
        ("{\"kind\":\"a\",\"key\":\"b\",\"payload\":{},\"after\":[\"b\"]}", "the task itself"),
        ("{\"kind\":\"a\",\"key\":\"b\",\"payload\":{}} x", "trailing characters"),
    ] {
        let (found, message) = refused(body);
        assert!(found == "TASK_INVALID" && message.contains(says), "{body}: {found} {message}");
    }
    let long = format!("{{\"kind\":\"a\",\"key\":\"{}\",\"payload\":{{}}}}", "k".repeat(513));
    assert!(refused(&long).1.contains("`key` has 513 bytes; at most 512"));
    // Not UTF-8, and deeper than any stack.
    assert!(Geotask::parse(b"{\"kind\":\"\xff\"}").is_err());
    let deep = format!("{{\"kind\":\"a\",\"key\":\"b\",\"payload\":{{\"a\":{}", "[".repeat(1_000_000));
    assert_eq!(refused(&deep).0, "TASK_INVALID");
}

#[test]
fn a_message_that_is_too_large_is_not_parsed() {
    let message = Message::new("b", vec![b' '; 2000]);
    let error = Geotask::read(&message, 1024).unwrap_err();
    assert_eq!(error.code, Code::PAYLOAD_TOO_LARGE);
    assert!(error.message.contains("2000 bytes"), "{error}");
}

#[test]
fn times_of_a_task_are_those_of_its_message() {
    let body = br#"{"kind":"a","key":"b","payload":{},"not_before":"1970-01-01T00:00:10Z","expires":"1970-01-01T00:00:20.5Z","priority":3,"ordering_key":"o"}"#;
    let task = Geotask::parse(body).unwrap();
    let message = task.message().unwrap();
    assert_eq!((message.not_before, message.priority), (Some(10_000), 3));
    assert_eq!((message.key.as_str(), message.ordering_key.as_deref()), ("b", Some("o")));
    assert_eq!([20_499, 20_500].map(|now| task.is_expired(now)), [false, true]);
    assert_eq!(Geotask::read(&message, LARGE).unwrap(), task);
}

#[test]
fn a_structured_cloud_event_is_a_task() {
    let body = br#"{"specversion":"1.0","type":"com.example.parcel","id":"12/3","source":"/cadastre",
        "time":"2026-11-17T00:00:00Z","subject":"x","datacontenttype":"application/geo+json; charset=utf-8",
        "traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","partitionkey":"p",
        "tgpriority":7,"tgnotbefore":"1970-01-01T00:00:01Z","tgbbox":"16.1,48.1, 16.6,48.4","tgafter":"a,b",
        "other":true,"empty":null,"data":{"type":"Feature","properties":{},"geometry":null}}"#;
    let task = Geotask::parse(body).unwrap();
    assert_eq!(
        serde_json::to_value(&task).unwrap(),
        serde_json::json!({
            "kind": "com.example.parcel", "key": "12/3", "submitted_by": "/cadastre",
            "payload": {"type": "Feature", "properties": {}, "geometry": null},
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "ordering_key": "p", "priority": 7, "not_before": "1970-01-01T00:00:01Z",
            "bbox": [16.1, 48.1, 16.6, 48.4], "after": ["a", "b"],
        })
    );
    for (part, says) in [
        (r#""specversion":"0.3""#, "expected 1.0"),
        (r#""specversion":"1.0""#, "has no `id`"),
        (r#""specversion":"1.0","id":"1","type":"t","source":"s""#, "neither `data` nor `tgobject`"),
        (r#""specversion":"1.0","data_base64":"e30=""#, "`data_base64` is not supported"),
        (r#""specversion":"1.0","tgprio":1"#, "unknown attribute `tgprio`"),
        (r#""specversion":"1.0","tgpriority":-1"#, "`tgpriority` must be a whole number"),
        (r#""specversion":"1.0","id":["1"]"#, "`id` must be a single value"),
        (r#""specversion":"1.0","datacontenttype":"text/xml""#, "the data must be JSON"),
    ] {
        let (_, message) = refused(&format!("{{{part}}}"));
        assert!(message.contains(says), "{part}: {message}");
    }
}

#[test]
fn a_binary_cloud_event_is_a_task() {
    for prefix in ["ce-", "ce_", "cloudEvents:"] {
        let mut message = Message::new("ignored", *b"{\"id\": 7}");
        for (name, value) in [("specversion", "1.0"), ("type", "t"), ("id", "7"), ("source", "s")] {
            message.headers.insert(format!("{prefix}{name}"), value.into());
        }
        let task = Geotask::read(&message, LARGE).unwrap();
        assert_eq!((task.kind.as_str(), task.key.as_str()), ("t", "7"));
        assert_eq!(task.payload.unwrap().get(), "{\"id\": 7}");
        message.body = b"<xml/>".to_vec();
        assert_eq!(Geotask::read(&message, LARGE).unwrap_err().code, Code::TASK_INVALID);
    }
}

#[test]
fn the_schema_has_the_keys_of_the_type() {
    let schema: serde_json::Value = serde_json::from_str(GEOTASK_SCHEMA).unwrap();
    let full = Geotask {
        kind: "a".into(),
        key: "b".into(),
        payload: Some(RawValue::from_string("{}".into()).unwrap()),
        object: Some("o".into()),
        crs: Some("EPSG:4326".into()),
        bbox: Some([0.0; 4]),
        not_before: Some("t".into()),
        expires: Some("t".into()),
        after: vec!["c".into()],
        priority: 1,
        ordering_key: Some("o".into()),
        attempt: 1,
        traceparent: Some("t".into()),
        submitted_by: Some("s".into()),
    };
    let value = serde_json::to_value(&full).unwrap();
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&schema["properties"]), keys(&value));
    assert_eq!(schema["additionalProperties"], false);
}

fn word() -> impl Strategy<Value = String> {
    "[\\PC]{1,40}".prop_filter("no control characters", |text| !text.chars().any(char::is_control))
}

prop_compose! {
    fn tasks()(
        (kind, key) in (word(), word()),
        field in any::<f64>().prop_filter("finite", |x| x.is_finite()),
        text in any::<String>(),
        is_object in any::<bool>(),
        (west, east) in (-180.0..=180.0f64, -180.0..=180.0f64),
        (south, height) in (-90.0..=0.0f64, 0.0..=90.0f64),
        has_box in any::<bool>(),
        ms in proptest::option::of(-62_167_219_200_000_i64..253_402_300_799_000),
        (priority, attempt) in (0..=9u8, any::<u32>()),
        after in proptest::collection::vec(word(), 0..3),
        (crs, order, by, trace) in (
            proptest::option::of(word()), proptest::option::of(word()),
            proptest::option::of(word()), proptest::option::of(word())),
    ) -> Geotask {
        let payload = serde_json::json!({ "type": "Feature", "properties": { "x": field, "t": text } });
        Geotask {
            payload: (!is_object).then(|| RawValue::from_string(payload.to_string()).unwrap()),
            object: is_object.then(|| "s3://bucket/a b.geojson".to_owned()),
            bbox: has_box.then_some([west, south, east, south + height]),
            not_before: ms.map(tidegate_core::time::calendar::rfc3339_ms),
            expires: None,
            after: after.into_iter().filter(|other| *other != key).collect(),
            crs, ordering_key: order, submitted_by: by, traceparent: trace,
            kind, key, priority, attempt,
        }
    }
}

proptest! {
    #[test]
    fn a_written_task_is_read_as_it_was(task in tasks()) {
        let message = task.message().unwrap();
        let read = Geotask::read(&message, LARGE).unwrap();
        prop_assert_eq!(&read, &task);
        prop_assert_eq!(read.bbox, task.bbox);
        prop_assert_eq!(message.not_before, task.not_before_ms());
        prop_assert_eq!(read.message().unwrap(), message);
    }

    #[test]
    fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Geotask::parse(&body);
    }

    #[test]
    fn no_damage_makes_it_panic(task in tasks(), at in any::<prop::sample::Index>(), byte in any::<u8>(), event in any::<bool>()) {
        let mut body = task.message().unwrap().body;
        if event {
            body.splice(1..1, *b"\"specversion\":\"1.0\",");
        }
        let at = at.index(body.len());
        body[at] = byte;
        let _ = Geotask::parse(&body);
        let _ = Geotask::parse(&body[..at]);
        let _ = Geotask::parse(&body[at..]);
    }
}
