//! OTLP: what a collector gets, and what a service is told of the trace.

use crate::telemetry::bench::{Bench, geocoder, taking};

fn geocode<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args =
        vec!["geocode", "in.csv", "--address", "address", "--url", url, "-o", "out.csv", "--quiet"];
    args.extend(more);
    args
}

#[test]
fn a_collector_gets_metrics_and_spans() {
    let collector = taking();
    // The second call is refused once.
    let geocoder = geocoder(|n| if n == 1 { "503 Busy" } else { "200 OK" });
    let bench = Bench::addresses(5);
    let (endpoint, url) = (collector.url(), geocoder.url());
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=harbour"),
        ("OTEL_SERVICE_NAME", "night-shift"),
        ("TRACEPARENT", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("GEO_KEY", "correct-horse-battery"),
    ];
    let ran = bench.run(&geocode(&url, &["--in-flight", "1", "--key", "env:GEO_KEY"]), &env);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let pushed = collector.asked();
    let of = |path: &str| {
        let found: Vec<_> = pushed.iter().filter(|p| p.head.starts_with(&format!("POST {path} "))).collect();
        assert!(
            !found.is_empty(),
            "nothing at {path}: {:?}",
            pushed.iter().map(|p| &p.head).collect::<Vec<_>>()
        );
        found
    };
    for push in &pushed {
        assert!(push.head.contains("content-type: application/x-protobuf"), "{}", push.head);
        assert!(push.head.contains("x-tenant: harbour"), "{}", push.head);
        assert!(push.holds("night-shift") && push.holds("service.name"));
        for secret in ["correct-horse", "Harbour Road", "/geocode", "16.25"] {
            assert!(!push.holds(secret), "{secret} was pushed");
        }
    }
    let metrics = of("/v1/metrics");
    let last = metrics.last().unwrap();
    for name in
        ["retry_count_total", "tidegate_records_total", "committed", "geocode:in", "tidegate_lane_rate"]
    {
        assert!(last.holds(name), "{name}");
    }
    let trace: Vec<u8> = (0..32)
        .step_by(2)
        .map(|i| u8::from_str_radix(&"4bf92f3577b34da6a3ce929d0e0e4736"[i..i + 2], 16).unwrap())
        .collect();
    let spans = of("/v1/traces");
    assert!(spans.iter().all(|s| s.body.windows(16).any(|w| w == trace)), "the trace goes on");
    for name in [
        "run",
        "batch",
        "call",
        "http.request.resend_count",
        "error.type",
        "server.address",
        "server.port",
        "http.response.status_code",
    ] {
        assert!(spans.iter().any(|s| s.holds(name)), "{name}");
    }
    // The service is told, because the profile allows it: a number of its own for each attempt.
    let told: Vec<String> = geocoder
        .asked()
        .iter()
        .map(|asked| asked.head.lines().find(|l| l.starts_with("traceparent: ")).expect("told").to_owned())
        .collect();
    assert_eq!(told.len(), 6);
    for (i, line) in told.iter().enumerate() {
        assert!(line.starts_with("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-"), "{line}");
        assert!(!told[..i].contains(line), "{line} twice");
    }
}

#[test]
fn without_a_profile_that_allows_it_nothing_is_sent_along() {
    let collector = taking();
    let shy = geocoder(|_| "200 OK");
    let bench = Bench::addresses(2);
    bench.write("p.yaml", "{ name: shy, extends: generic, trace_context: false }");
    let (endpoint, url) = (collector.url(), shy.url());
    let args = geocode(&url, &["--profiles", "p.yaml", "--profile", "shy"]);
    let ran = bench.run(&args, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(shy.asked().iter().all(|asked| !asked.head.contains("traceparent")));
    assert!(!collector.asked().is_empty());
    // And without a collector there is no trace at all.
    let quiet = geocoder(|_| "200 OK");
    assert_eq!(Bench::addresses(1).run(&geocode(&quiet.url(), &[]), &[]).code, 0);
    assert!(quiet.asked().iter().all(|asked| !asked.head.contains("traceparent")));
}

#[test]
fn a_collector_that_is_away_is_told_of_and_let_be() {
    let geocoder = geocoder(|_| "200 OK");
    let bench = Bench::addresses(2);
    let url = geocoder.url();
    // A port that nobody listens at.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{gone}");
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_EXPORTER_OTLP_TIMEOUT", "300")];
    let ran = bench.run(&geocode(&url, &[]), &env);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot export telemetry to the collector"), "{}", ran.stderr);
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    let ran = bench.run(&geocode(&url, &[]), &env);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("OTEL_EXPORTER_OTLP_PROTOCOL"), "{}", ran.stderr);
}
