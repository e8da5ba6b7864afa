//! The batch geocoder of the US Census: a CSV is uploaded in a form, a CSV is returned.

use std::fmt::Write;

use super::RefusalReason;
use crate::config::Config;
use crate::fate::{self, RowFate};
use crate::reply::ResponseDraft;
use crate::wire::ReceivedRequest;
use crate::world;

const ROWS_MAX: usize = 10_000;

pub(super) fn answer(config: &Config, request: &ReceivedRequest) -> ResponseDraft {
    let body = String::from_utf8_lossy(&request.body);
    let rows: Vec<&str> =
        upload(&request.content_type, &body).lines().filter(|l| !l.trim().is_empty()).collect();
    if request.method != "POST" || rows.is_empty() || rows.len() > ROWS_MAX {
        return super::refusal(super::Provider::Census, 400, RefusalReason::Bad);
    }
    let mut out = String::new();
    for row in rows {
        let fields = split(row);
        let id = fields.first().map_or("", String::as_str);
        let address = fields.get(1..).unwrap_or_default().join(", ");
        let quoted = address.replace('"', "\"\"");
        // Writing to a string cannot fail.
        let _ = match fate::row(config, world::subject(&address)) {
            RowFate::Good => {
                let place = world::place(config.seed, &address);
                let (lon, lat, upper) = (place.lon, place.lat, quoted.to_uppercase());
                let line = world::subject(&address) >> 34;
                writeln!(
                    out,
                    "\"{id}\",\"{quoted}\",\"Match\",\"Exact\",\"{upper}\",\"{lon},{lat}\",\"{line}\",\"L\""
                )
            }
            RowFate::NoMatch => writeln!(out, "\"{id}\",\"{quoted}\",\"No_Match\""),
            RowFate::Bad => writeln!(out, "\"{id}\",\"{quoted}\",\"Tie\""),
        };
    }
    ResponseDraft::new(200, "text/csv", out).worked()
}

/// The file inside a multipart form, or the whole body if it is not one.
fn upload<'a>(content_type: &str, body: &'a str) -> &'a str {
    let Some((_, boundary)) = content_type.split_once("boundary=") else { return body };
    let boundary = boundary.trim().trim_matches('"');
    let file = body.split(boundary).find(|part| part.contains("filename="));
    let content = file.and_then(|part| part.split_once("\r\n\r\n")).map_or("", |(_, content)| content);
    content.strip_suffix("\r\n--").unwrap_or(content)
}

/// The unquoted fields of a CSV line.
fn split(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.trim_end().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                fields.last_mut().into_iter().for_each(|f| f.push('"'));
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().into_iter().for_each(|f| f.push(c)),
        }
    }
    fields.iter().map(|f| f.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_file_and_splits_its_lines() {
        let body = "--xx\r\nContent-Disposition: form-data; name=\"benchmark\"\r\n\r\n4\r\n--xx\r\n\
                    Content-Disposition: form-data; name=\"addressFile\"; filename=\"a.csv\"\r\n\r\n\
                    1,\"2 Main, St\",X,,\n\r\n--xx--\r\n";
        let file = upload("multipart/form-data; boundary=xx", body);
        assert_eq!(file.trim(), "1,\"2 Main, St\",X,,");
        assert_eq!(split(file.trim()), ["1", "2 Main, St", "X", "", ""]);
    }
}
