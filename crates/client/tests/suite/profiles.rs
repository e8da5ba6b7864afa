//! Every profile against the bodies that its service sends (`profiles/tests/NAME`), and against
//! bodies that nobody sends.

use proptest::prelude::*;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tidegate_client::profile::form::KEYS;
use tidegate_client::profile::{EMBEDDED, GeocodeInput, GeocodeQuery, Profile, Profiles, Refusal, show};
use tidegate_core::hint::{Hints, TimeUnit};
use tidegate_core::signal::Signal;
use tidegate_core::{Mono, VerdictKind};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    cases: Vec<Case>,
    #[serde(default)]
    requests: Vec<Request>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    file: String,
    status: u16,
    r#type: String,
    kind: String,
    code: String,
    #[serde(default)]
    answers: Vec<Want>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Want {
    lon: f64,
    lat: f64,
    label: Option<String>,
    score: Option<f64>,
    kind: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    forward: Option<String>,
    reverse: Option<[f64; 2]>,
    base: Option<String>,
    key: Option<String>,
    language: Option<String>,
    country: Option<String>,
    limit: Option<u32>,
    user_agent: Option<String>,
    url: String,
    header: Option<String>,
    body: Option<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn profiles() -> Profiles {
    static ALL: LazyLock<Profiles> = LazyLock::new(|| Profiles::embedded().unwrap());
    ALL.clone()
}

fn kind(kind: VerdictKind) -> &'static str {
    match kind {
        VerdictKind::Done => "done",
        VerdictKind::NoMatch => "no_match",
        VerdictKind::Throttled { .. } => "throttled",
        VerdictKind::Transient { .. } => "transient",
        VerdictKind::Permanent => "permanent",
        VerdictKind::QuotaSpent { .. } => "quota_spent",
    }
}

fn expect(name: &str) -> Expect {
    let path = root().join("profiles/tests").join(name).join("expect.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_body_means_what_it_should() {
    for profile in profiles().iter() {
        let name = profile.name();
        let cases = expect(name).cases;
        for case in &cases {
            let at = format!("{name}/{}", case.file);
            let body = std::fs::read(root().join("profiles/tests").join(&at)).unwrap();
            let read = profile.read(case.status, Some(&case.r#type), &body);
            let signal = Signal::Http { status: case.status, finding: read.finding };
            let verdict = profile.classifier().classify(&signal, &Hints::default(), Mono::from_millis(0));
            assert_eq!(
                (kind(verdict.kind), verdict.code.as_str()),
                (case.kind.as_str(), case.code.as_str()),
                "{at}"
            );
            assert_eq!(read.answers.len(), case.answers.len(), "{at}");
            for (got, want) in read.answers.iter().zip(&case.answers) {
                assert_eq!((got.lon, got.lat, got.score), (want.lon, want.lat, want.score), "{at}");
                assert_eq!((&got.label, &got.kind), (&want.label, &want.kind), "{at}");
            }
        }
        let has = |kind: &str| cases.iter().any(|c| c.kind == kind);
        assert!(has("done") && has("no_match") && has("transient") && has("permanent"), "{name}");
        let files = std::fs::read_dir(root().join("profiles/tests").join(name)).unwrap().count();
        let bodies: BTreeSet<_> = cases.iter().map(|case| &case.file).collect();
        assert_eq!(files, bodies.len() + 1, "{name}: every body is expected to mean something");
    }
}

#[test]
fn every_request_is_exact() {
    for profile in profiles().iter() {
        for want in expect(profile.name()).requests {
            let at = want.base.as_deref().map_or(profile.clone(), |base| profile.at(base).unwrap());
            let what = match (&want.forward, want.reverse) {
                (Some(address), None) => GeocodeInput::Forward(address),
                (None, Some([lon, lat])) => GeocodeInput::Reverse { lon, lat },
                _ => panic!("{}: forward or reverse", profile.name()),
            };
            let request = at
                .request(&GeocodeQuery {
                    key: want.key.as_deref(),
                    language: want.language.as_deref(),
                    country: want.country.as_deref(),
                    limit: want.limit,
                    user_agent: want.user_agent.as_deref(),
                    ..GeocodeQuery::new(what)
                })
                .unwrap();
            assert_eq!(request.url, want.url);
            assert_eq!(request.body, want.body);
            let headers: Vec<String> =
                request.headers.iter().map(|h| format!("{}: {}", h.name, h.value)).collect();
            assert!(want.header.is_none_or(|h| headers.contains(&h)), "{headers:?}");
        }
    }
}

#[test]
fn the_key_is_in_no_text_that_is_shown() {
    for profile in profiles().iter() {
        let key = Some("CANARY&7");
        for what in [GeocodeInput::Forward("x"), GeocodeInput::Reverse { lon: 1.0, lat: 2.0 }] {
            let ask = GeocodeQuery { key, user_agent: Some("parcels/1"), ..GeocodeQuery::new(what) };
            let Ok(request) = profile.request(&ask) else { continue };
            let shown = format!("{request:?} {}", request.public_url());
            assert!(!shown.contains("CANARY"), "{shown}");
        }
    }
}

#[test]
fn a_long_address_is_asked_whole() {
    let address = "é".repeat(5000);
    let nominatim = profiles().get("nominatim").unwrap().clone();
    let ask =
        GeocodeQuery { user_agent: Some("parcels/1"), ..GeocodeQuery::new(GeocodeInput::Forward(&address)) };
    let url = nominatim.request(&ask).unwrap().url;
    let want =
        format!("https://nominatim.openstreetmap.org/search?q={}&format=jsonv2", "%C3%A9".repeat(5000));
    assert_eq!(url, want);
}

#[test]
fn what_cannot_be_asked_is_refused_with_a_reason() {
    let all = profiles();
    let refuse = |name: &str, ask: GeocodeQuery<'_>| all.get(name).unwrap().request(&ask).unwrap_err();
    let berlin = GeocodeQuery::new(GeocodeInput::Forward("Berlin"));
    let told = refuse("nominatim", berlin).to_string();
    assert!(told.starts_with("profile nominatim requires a User-Agent: set one that names your"), "{told}");
    let stock = GeocodeQuery { user_agent: Some("python-requests/2.31"), ..berlin };
    assert!(matches!(refuse("nominatim", stock), Refusal::UserAgent { .. }));
    assert_eq!(refuse("google", berlin), Refusal::NoKey("google".into()));
    assert_eq!(refuse("generic", berlin), Refusal::NoUrl("generic".into()));
    assert_eq!(refuse("photon", GeocodeQuery::new(GeocodeInput::Forward(" \n"))), Refusal::Blank);
    let swapped = GeocodeQuery::new(GeocodeInput::Reverse { lon: 48.0, lat: 139.0 });
    assert_eq!(refuse("photon", swapped), Refusal::OffTheGlobe { lon: 48.0, lat: 139.0 });
    let nan = GeocodeQuery::new(GeocodeInput::Reverse { lon: f64::NAN, lat: 1.0 });
    assert!(matches!(refuse("photon", nan), Refusal::OffTheGlobe { .. }));
    assert!(matches!(
        refuse("us-census", GeocodeQuery::new(GeocodeInput::Reverse { lon: 1.0, lat: 1.0 })),
        Refusal::NoEndpoint { .. }
    ));
    let smuggled = GeocodeQuery { user_agent: Some("a/1\r\nX: y"), ..berlin };
    assert_eq!(refuse("photon", smuggled), Refusal::Header("User-Agent".into()));
}

#[test]
fn an_idempotency_key_goes_where_the_profile_says() {
    let ask = GeocodeQuery { idempotency_key: Some("abc"), ..GeocodeQuery::new(GeocodeInput::Forward("x")) };
    let all = profiles();
    let generic = all.get("generic").unwrap().at("http://h").unwrap().request(&ask).unwrap();
    assert_eq!(
        (generic.headers[0].name.as_str(), generic.headers[0].value.as_str()),
        ("Idempotency-Key", "abc")
    );
    assert!(all.get("photon").unwrap().request(&ask).unwrap().headers.is_empty());
}

#[test]
fn settings_reach_the_core() {
    let all = profiles();
    let of = |name: &str| all.get(name).unwrap();
    assert_eq!(of("sentinel-hub").hints().retry_after_unit, TimeUnit::Milliseconds);
    assert_eq!(of("google").hints().retry_after_unit, TimeUnit::Seconds);
    assert!(of("sentinel-hub").classifier().quota.has(403));
    assert!(of("s3").classifier().throttle.has(503));
    assert!(of("overpass").classifier().throttle.has(504));
    assert!(!of("google").classifier().quota.has(403));
    assert!(of("us-census").timeout().as_secs() >= 300);
    assert_eq!(of("us-census").form().batch.as_ref().unwrap().rows_max, 10_000);
    assert_eq!((of("nominatim").rate_per_second(), of("nominatim").in_flight()), (1.0, 1));
    assert!(!of("nominatim").trace_context());
}

#[test]
fn an_own_profile_wins_and_may_extend() {
    let dir = tempfile::tempdir().unwrap();
    let own = "name: nominatim\nextends: nominatim\nurl: http://localhost:8088/n\n\
               rate: { per_second: 50, burst: 5 }\nuser_agent: { required: false, say: any }\n\
               price: { per_1000: 0.5, currency: EUR, as_of: 2026-01 }\n";
    std::fs::write(dir.path().join("n.yaml"), own).unwrap();
    std::fs::write(dir.path().join("ignored.txt"), "{").unwrap();
    let all = profiles().with(dir.path()).unwrap();
    let nominatim = all.get("nominatim").unwrap();
    assert_eq!((nominatim.rate_per_second(), nominatim.burst()), (50.0, 5));
    let url = nominatim.request(&GeocodeQuery::new(GeocodeInput::Forward("x"))).unwrap().url;
    assert_eq!(url, "http://localhost:8088/n/search?q=x&format=jsonv2");
    assert_eq!(all.names().len(), EMBEDDED.len());
    assert!(all.file("nominatim").is_some_and(|f| f.ends_with("n.yaml")));
    assert!(
        show::show(&all, "nominatim", show::ProfileOutputFormat::Table)
            .unwrap()
            .contains("0.5 EUR per 1000 calls (2026-01)")
    );
    let one = profiles().with(&dir.path().join("n.yaml")).unwrap();
    assert_eq!(one.get("nominatim").unwrap().burst(), 5);
    assert!(profiles().with(Path::new("no/such/file.yaml")).is_err());
}

#[test]
fn a_mistake_is_told_with_its_line() {
    let refuse = |source: &str| profiles().with_source("own.yaml", source).unwrap_err().to_string();
    let head = "name: own\nabout: Mine.\n";
    for (rest, want) in [
        ("tiemout: 5s\n", "own.yaml:3:1: unknown key `tiemout`; did you mean `timeout`?"),
        (
            "timeout: 5\n",
            "own.yaml:3:10: invalid duration `5`; expected a value such as 500ms, 30s, 5m or 1h",
        ),
        ("rate: { per_second: 0 }\n", "own.yaml:3:21: 0 is not greater than 0"),
        ("rate:\n  per_secnod: 1\n", "own.yaml:4:3: unknown key `per_secnod`; did you mean `per_second`?"),
        ("repeat: saef\n", "own.yaml:3:9: `saef` is not one of safe, billed, costly; did you mean `safe`?"),
        (
            "forward:\n  path: /f\n  query: { q: \"{adress}\" }\n",
            "own.yaml:5:15: unknown placeholder `{adress}`; did you mean `address`?",
        ),
        (
            "answers:\n  - { list: results, lon: /x, lat: /y }\n",
            "own.yaml:4:13: `results` is not a JSON pointer; it must start with `/` or be empty",
        ),
        ("status: { quota: [99] }\n", "own.yaml:3:19: 99 is not an HTTP status; expected 100 to 599"),
        ("forward: { path: /f }\n", "own.yaml: `forward` must contain {address}, or {lat} and {lon}"),
        ("auth: { optional: true }\n", "own.yaml: `auth` must have either `query` or `header`"),
        (
            "status: { terminal: [503], retryable: [503] }\n",
            "own.yaml: `status`: 503 cannot be both terminal and retryable",
        ),
        ("extends: gogle\n", "own.yaml: `extends`: no profile `gogle`; did you mean `google`?"),
        (
            "answers: [{ list: /r, lon: /x, lat: /y }, { list: /r, lon: /a, lat: /b }]\n",
            "own.yaml: `answers`: two shapes read `/r`; use one shape with several pointers",
        ),
        (
            "sniff: [{ json: /r/0, means: done }]\nanswers: [{ list: /r, lon: /x, lat: /y }]\n",
            "own.yaml: `sniff`: `/r/0` looks into `/r`, which `answers` reads",
        ),
    ] {
        assert_eq!(refuse(&format!("{head}{rest}")), want);
    }
    assert!(
        refuse(&format!("{head}sniff: [{{ means: permanent }}]\n"))
            .contains("a rule must have one of json, xml, text, html, status")
    );
    assert!(
        refuse(&format!("{head}sniff: [{{ html: true, means: permanant }}]\n"))
            .contains("did you mean `permanent`?")
    );
    assert_eq!(refuse("about: x\n").split(": ").last(), Some("missing key `name`"));
    assert!(
        profiles()
            .get("nominatm")
            .unwrap_err()
            .to_string()
            .starts_with("unknown profile `nominatm`; did you mean `nominatim`?")
    );
}

#[test]
fn every_form_is_shown() {
    let all = profiles();
    let table = show::ls(&all, show::ProfileOutputFormat::Table).unwrap();
    assert_eq!(table.lines().count(), EMBEDDED.len() + 1);
    let json: serde_json::Value =
        serde_json::from_str(&show::ls(&all, show::ProfileOutputFormat::Json).unwrap()).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(EMBEDDED.len()));
    for (name, source) in EMBEDDED {
        assert_eq!(show::show(&all, name, show::ProfileOutputFormat::Yaml).unwrap(), *source);
        let text = show::show(&all, name, show::ProfileOutputFormat::Table).unwrap();
        assert!(text.starts_with(&format!("name           {name}\n")), "{text}");
        // What is shown as JSON is itself a profile, the same one.
        let json = show::show(&all, name, show::ProfileOutputFormat::Json).unwrap();
        let again = profiles().with_source(name, &json).unwrap();
        assert_eq!(again.get(name).unwrap().form(), all.get(name).unwrap().form());
        assert_eq!(Profiles::embedded_one(name).unwrap().unwrap().name(), *name);
    }
    assert!(Profiles::embedded_one("none").is_none());
}

#[test]
fn the_docs_know_every_key_and_every_profile() {
    let docs = std::fs::read_to_string(root().join("docs/profiles.md")).unwrap();
    for key in KEYS {
        assert!(docs.contains(&format!("| `{key}` |")), "docs/profiles.md does not tell of `{key}`");
    }
    let table = show::markdown(&profiles());
    assert!(docs.contains(&table), "docs/profiles.md should hold this table:\n{table}");
}

#[test]
fn hostile_bodies_end() {
    let deep = |open: &str, n: usize| open.repeat(n).into_bytes();
    let bodies = [
        deep("[", 50_000),
        deep("{\"features\":", 10_000),
        deep("{\"error\":", 10_000),
        deep("[{\"geometry\":{\"coordinates\":", 5_000),
        deep("<a>", 10_000),
        format!("<a {}>", "b=\"c\" ".repeat(20_000)).into_bytes(),
        format!("[{}1]", "1,".repeat(20_000)).into_bytes(),
        format!("{{\"lat\":1e999,\"lon\":{}}}", "9".repeat(10_000)).into_bytes(),
        b"<!DOCTYPE a [<!ENTITY b \"&b;&b;\">]><a>&b;</a>".to_vec(),
        vec![0xff; 1000],
    ];
    for profile in profiles().iter() {
        for body in &bodies {
            for status in [200, 503] {
                assert_eq!(profile.read(status, None, body).answers, []);
            }
        }
    }
}

fn well_placed(profile: &Profile, status: u16, body: &[u8]) {
    let read = profile.read(status, Some("application/json"), body);
    assert_eq!(profile.read(status, Some("application/json"), body), read);
    assert!(read.finding.is_none() || read.answers.is_empty());
    for a in &read.answers {
        assert!(a.lon.abs() <= 180.0 && a.lat.abs() <= 90.0);
        assert!(a.score.is_none_or(|s| (0.0..=1.0).contains(&s)));
    }
}

/// JSON of the words that profiles look for.
fn json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-400.0..400.0).prop_map(Value::from),
        prop_oneof![Just("OK"), Just("12.5"), Just("NaN"), Just("inf"), Just("OVER_QUERY_LIMIT")]
            .prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("results"),
        Just("features"),
        Just("error"),
        Just("geometry"),
        Just("coordinates"),
        Just("lat"),
        Just("lon"),
        Just("location"),
        Just("items"),
        Just("position"),
        Just("lng"),
        Just("status"),
        Just("x"),
        Just("y"),
        Just("candidates"),
        Just("code"),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_read(body in prop::collection::vec(any::<u8>(), 0..300), status in 100_u16..600) {
        for profile in profiles().iter() {
            well_placed(profile, status, &body);
        }
    }

    #[test]
    fn any_json_is_read_and_any_cut_of_it(json in json(), cut in 0.0..1.0) {
        let text = json.to_string();
        let cut = (text.len() as f64 * cut) as usize;
        for profile in profiles().iter() {
            well_placed(profile, 200, text.as_bytes());
            well_placed(profile, 200, &text.as_bytes()[..cut]);
        }
    }

    #[test]
    fn any_address_comes_back_from_its_url(address in "\\PC{1,40}") {
        prop_assume!(!address.trim().is_empty());
        let photon = Profiles::embedded_one("photon").unwrap().unwrap();
        let url = photon.request(&GeocodeQuery::new(GeocodeInput::Forward(&address))).unwrap().url;
        let url = url::Url::parse(&url).unwrap();
        let (_, q) = url.query_pairs().next().unwrap();
        prop_assert_eq!(q.as_ref(), address.as_str());
    }

    #[test]
    fn any_yaml_is_a_profile_or_a_problem(text in "\\PC{0,200}") {
        let _ = profiles().with_source("x", &text);
    }
}
