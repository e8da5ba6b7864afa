//! The actions of an alert: a webhook, a command, the exit code.

use super::PATIENCE;
use crate::child;
use crate::http::{
    Allow, Client, ClientConfig, Credential, CredentialLocation, Exchange, Request, ServiceDialect, Trace,
};
use crate::lane::{Clock, Lanes};
use crate::letter::now_ms;
use crate::manifest::Action;
use crate::secret::{Redactor, SecretRef, fetch_given, mask};
use crate::telemetry::trace;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_core::Rng;
use tidegate_core::alert::{Alert, AlertChange};
use tidegate_core::call::CallPolicy;
use tidegate_core::lane::LaneConfig;
use url::Url;

/// An action, ready to run.
pub(super) struct PreparedAction {
    on: Vec<Alert>,
    pub(super) exit_code: bool,
    webhook: Option<(Exchange, Request)>,
    command: Vec<String>,
    /// The variables that the command gets.
    env: Vec<String>,
}

impl PreparedAction {
    pub(super) fn new(form: &Action) -> Result<PreparedAction, String> {
        let webhook = form.webhook.as_deref().map(|given| {
            let url = fetch_given(given).map_err(|e| format!("`webhook`: {e}"))?;
            webhook(url.reveal(), form.key.as_deref())
        });
        let webhook = webhook.transpose()?;
        Ok(PreparedAction {
            on: form.on.iter().map(|name| name.alert()).collect(),
            exit_code: form.exit_code,
            webhook,
            command: form.command.clone(),
            env: form.env.clone(),
        })
    }

    /// Whether this alert triggers the action.
    pub(super) fn wants(&self, alert: Alert) -> bool {
        self.on.is_empty() || self.on.contains(&alert)
    }

    pub(super) async fn act(
        &self,
        change: &AlertChange,
        pipeline: &str,
        store: Option<&str>,
    ) -> Result<(), String> {
        let body = serde_json::json!({
            "alert": change.alert.name(),
            "firing": change.firing,
            "message": change.said,
            "advice": change.alert.advice_for(store),
            "pipeline": pipeline,
            "trace_id": trace::tracer().map(trace::Tracer::trace_id),
            "at_ms": now_ms(),
        })
        .to_string();
        if let Some((exchange, request)) = &self.webhook {
            let request = Request { body: body.clone().into(), ..request.clone() };
            let outcome = exchange.call(&request, Rng::new(now_ms() as u64)).await;
            if !outcome.is_accepted() {
                let host = request.url.host_str().unwrap_or_default();
                return Err(format!("cannot send the alert to the webhook at {host}: {}", outcome.word()));
            }
        }
        let Some((program, arguments)) = self.command.split_first() else { return Ok(()) };
        let (program, arguments, change) = (program.clone(), arguments.to_vec(), change.clone());
        let env = self.env.clone();
        let running = tokio::task::spawn_blocking(move || run(&program, (&arguments, &env), &change, &body));
        running.await.map_err(|e| e.to_string())?
    }
}

/// Sends a JSON document to a webhook.
///
/// # Errors
/// When it was not accepted.
pub async fn post(url: &str, body: &str) -> Result<(), String> {
    let (exchange, request) = webhook(url, None)?;
    let request = Request { body: body.to_owned().into(), ..request };
    let outcome = exchange.call(&request, Rng::new(now_ms() as u64)).await;
    if outcome.is_accepted() {
        return Ok(());
    }
    let host = request.url.host_str().unwrap_or_default();
    Err(format!("the webhook at {host} did not accept it: {}", outcome.word()))
}

fn webhook(url: &str, key: Option<&str>) -> Result<(Exchange, Request), String> {
    let url = Url::parse(url).map_err(|e| format!("invalid `webhook` URL: {e}"))?;
    // The configured host is allowed at any address, but redirects to others are not.
    let allow = Allow::meant(&url, true, &[]);
    allow.url(&url).map_err(|e| format!("`webhook`: {}", mask(&e.to_string())))?;
    let config = ClientConfig { allow, redirects_max: 0, ..ClientConfig::default() };
    let client = Client::new(config, [&url]).map_err(|e| e.to_string())?;
    let mut request = Request::new(http::Method::POST, url, Vec::new().into());
    let json = http::HeaderValue::from_static("application/json");
    request.headers.insert(http::header::CONTENT_TYPE, json);
    // A repeated notification is better than a lost one.
    request.idempotency_key = Some(request.key_bytes());
    let mut redactor = Redactor::new();
    if let Some(key) = key {
        let from: SecretRef = key.parse().map_err(|e: crate::secret::SecretError| format!("`key`: {e}"))?;
        let secret = from.fetch().map_err(|e| format!("`key`: {e}"))?;
        redactor.add(&secret);
        let place = CredentialLocation::Header(http::header::AUTHORIZATION, "Bearer ".to_owned());
        request.credentials.push(Credential { name: from.to_string(), place, secret });
    }
    let policy = CallPolicy {
        attempts_max: 3,
        deadline: PATIENCE,
        attempt_timeout: PATIENCE / 2,
        ..CallPolicy::default()
    };
    let exchange = Exchange {
        client,
        lanes: Lanes::new(&LaneConfig::default(), Clock::system()),
        dialect: ServiceDialect::default(),
        policy,
        redactor: Arc::new(redactor),
        trace: Trace::Off,
    };
    Ok((exchange, request))
}

/// Runs a program without a shell: the alert is in its environment and, as JSON, on its standard
/// input. Its output is not read.
fn run(
    program: &str,
    (arguments, env): (&[String], &[String]),
    change: &AlertChange,
    body: &str,
) -> Result<(), String> {
    let fail = |why: String| format!("the command {program} {why}");
    let mut child = child::command(program, env)
        .map_err(|e| fail(format!("cannot be started: {e}")))?
        .args(arguments)
        .env("TIDEGATE_ALERT", change.alert.name())
        .env("TIDEGATE_ALERT_FIRING", if change.firing { "1" } else { "0" })
        .env("TIDEGATE_ALERT_MESSAGE", &change.said)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| fail(format!("cannot be started: {e}")))?;
    if let Some(mut input) = child.stdin.take() {
        // The text fits into the buffer of a pipe; a command may ignore it.
        let _ = input.write_all(body.as_bytes());
    }
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(fail(format!("failed: {status}"))),
            Ok(None) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                // Killing fails only if it has ended.
                let _ = child.kill();
                let _ = child.wait();
                return Err(fail(format!("did not finish within {} s and was stopped", PATIENCE.as_secs())));
            }
            Err(e) => return Err(fail(e.to_string())),
        }
    }
}
