//! The output of `tidegate profiles ls` and `tidegate profiles show NAME`.
//!
//! A table is for people, JSON for programs. YAML is the profile file itself with its comments, to
//! be copied and changed.

use super::form::{Auth, Repeat};
use super::{Profile, ProfileError, Profiles};
use std::fmt::Write;

/// The output format of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileOutputFormat {
    /// A table for people.
    #[default]
    Table,
    /// The YAML file.
    Yaml,
    /// JSON for programs.
    Json,
}

/// All profiles, one line each.
///
/// # Errors
/// When a profile cannot be serialized as JSON.
pub fn ls(profiles: &Profiles, view: ProfileOutputFormat) -> Result<String, ProfileError> {
    match view {
        ProfileOutputFormat::Json => {
            let forms: Vec<_> = profiles.iter().map(Profile::form).collect();
            serde_json::to_string_pretty(&forms).map(|s| s + "\n").map_err(ProfileError::Json)
        }
        ProfileOutputFormat::Yaml => {
            let sources: Result<Vec<&str>, ProfileError> =
                profiles.names().iter().map(|n| profiles.source(n)).collect();
            Ok(sources?.join("---\n"))
        }
        ProfileOutputFormat::Table => {
            let mut rows =
                vec![["NAME", "ASKS", "AUTH", "RATE/S", "BURST", "REPEAT", "ABOUT"].map(String::from)];
            rows.extend(profiles.iter().map(|p| row(p).map(String::from)));
            Ok(columns(&rows))
        }
    }
}

/// All details of one profile.
///
/// # Errors
/// When there is no profile of this name, or it cannot be serialized as JSON.
pub fn show(profiles: &Profiles, name: &str, view: ProfileOutputFormat) -> Result<String, ProfileError> {
    let profile = profiles.get(name)?;
    match view {
        ProfileOutputFormat::Json => {
            serde_json::to_string_pretty(profile.form()).map(|s| s + "\n").map_err(ProfileError::Json)
        }
        ProfileOutputFormat::Yaml => profiles.source(name).map(str::to_owned),
        ProfileOutputFormat::Table => Ok(words(profile, profiles.file(name))),
    }
}

/// The Markdown table of all profiles, for the documentation.
#[must_use]
pub fn markdown(profiles: &Profiles) -> String {
    let mut out = String::from(
        "| name | asks | auth | rate/s | burst | repeat | about |\n|---|---|---|---|---|---|---|\n",
    );
    for profile in profiles.iter() {
        let _ = writeln!(out, "| {} |", row(profile).join(" | "));
    }
    out
}

fn row(p: &Profile) -> [String; 7] {
    let form = p.form();
    let asks = [("forward", form.forward.is_some()), ("reverse", form.reverse.is_some())];
    let asks: Vec<&str> = asks.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    [
        p.name().to_owned(),
        if asks.is_empty() { "-".to_owned() } else { asks.join(", ") },
        form.auth.as_ref().map_or_else(|| "none".to_owned(), auth),
        p.rate_per_second().to_string(),
        p.burst().to_string(),
        repeat(p.repeat()).to_owned(),
        form.about.clone().unwrap_or_default(),
    ]
}

fn auth(auth: &Auth) -> String {
    let mut out = match (&auth.query, &auth.header, &auth.scheme) {
        (Some(query), ..) => format!("query {query}"),
        (_, Some(header), Some(scheme)) => format!("header {header}: {scheme}"),
        (_, Some(header), None) => format!("header {header}"),
        _ => String::new(),
    };
    if auth.optional {
        out.push_str(" (optional)");
    }
    out
}

const fn repeat(repeat: Repeat) -> &'static str {
    match repeat {
        Repeat::Safe => "safe",
        Repeat::Billed => "billed",
        Repeat::Costly => "costly",
    }
}

fn columns(rows: &[[String; 7]]) -> String {
    let width = |i: usize| rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn words(p: &Profile, file: Option<&str>) -> String {
    let form = p.form();
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:14} {value}");
    };
    line("name", p.name().to_owned());
    line("about", form.about.clone().unwrap_or_default());
    line("from", file.unwrap_or("built in").to_owned());
    if let Some(url) = &form.url {
        line("url", url.to_string());
    }
    for (name, endpoint) in [("forward", &form.forward), ("reverse", &form.reverse)] {
        if let Some(e) = endpoint {
            let pairs = |pairs: &super::value::Pairs| {
                pairs.iter().map(|(n, t)| format!("{n}={}", t.as_str())).collect::<Vec<_>>().join("&")
            };
            let mut text = format!("{} {}", e.method.as_str(), e.path.as_str());
            if !e.query.is_empty() {
                let _ = write!(text, "?{}", pairs(&e.query));
            }
            if !e.form.is_empty() {
                let _ = write!(text, " with form {}", pairs(&e.form));
            }
            line(name, text);
        }
    }
    if let Some(batch) = &form.batch {
        let text =
            format!("{} {}, at most {} rows", batch.method.as_str(), batch.path.as_str(), batch.rows_max);
        line("batch", text);
    }
    line("auth", form.auth.as_ref().map_or_else(|| "none".to_owned(), auth));
    line("rate", format!("{} per second, burst {}", p.rate_per_second(), p.burst()));
    line("in flight", p.in_flight().to_string());
    line("timeout", format!("{} s", p.timeout().as_secs_f64()));
    line("repeat", repeat(p.repeat()).to_owned());
    line("trace context", if p.trace_context() { "sent" } else { "not sent" }.to_owned());
    let classifier = p.classifier();
    let list = |set: &tidegate_core::classify::StatusSet| {
        set.iter().map(|s| s.to_string()).collect::<Vec<_>>().join(" ")
    };
    line("throttle", list(&classifier.throttle));
    line("quota", list(&classifier.quota));
    line("retryable", list(&classifier.retryable));
    if let Some(header) = &form.idempotency_header {
        line("idempotency", header.to_string());
    }
    if let Some(agent) = form.user_agent.as_ref().filter(|a| a.required) {
        line("user agent", format!("required: {}", agent.say));
    }
    if let Some(price) = &form.price {
        line(
            "price",
            format!("{} {} per 1000 calls ({})", price.per_1000.get(), price.currency, price.as_of),
        );
    }
    for note in form.notes.iter().flatten() {
        line("note", note.clone());
    }
    out
}
