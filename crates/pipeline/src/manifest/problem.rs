//! Errors in a manifest: what, where, and what to do.
//!
//! A [`ManifestProblem`] is one error at one position. A [`Rejection`] is a file with all its
//! errors: formatted as text with the lines in question, or as [`Diagnostic`]s for programs. Names
//! and values from the file are escaped and truncated before they are shown, because a file may
//! contain anything, including terminal control codes.

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde::Serialize;

use super::tree::ByteRange;
use crate::secret::{mask, secrets_in};

/// The most problems that are reported; the rest is counted.
const REPORTED_MAX: usize = 50;
/// The longest line that is shown, in bytes: a file may be one line of a megabyte.
const SNIPPET_BYTES_MAX: usize = 10_000;
/// The number of lines shown before and after the one in question.
const CONTEXT_LINES: usize = 1;

/// One error at one position.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ManifestProblem {
    pub(super) code: &'static str,
    pub(super) place: Option<ByteRange>,
    pub(super) message: String,
    pub(super) help: String,
}

impl ManifestProblem {
    /// A problem at a position.
    pub(super) fn new(code: &'static str, place: ByteRange, message: impl Into<String>) -> ManifestProblem {
        ManifestProblem { code, place: Some(place), message: message.into(), help: String::new() }
    }

    /// A problem of the file as a whole.
    pub(super) fn whole(code: &'static str, message: impl Into<String>) -> ManifestProblem {
        ManifestProblem { code, place: None, message: message.into(), help: String::new() }
    }

    /// Adds what to do about it.
    pub(super) fn help(mut self, help: impl Into<String>) -> ManifestProblem {
        self.help = help.into();
        self
    }
}

/// A text from the file for a message: in backticks, escaped, truncated.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 40;
    // Before it is cut, because half a URL hides where its password ends.
    let text = mask(text);
    let shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("`{}{more}`", shown.replace("\\'", "'").replace("\\\"", "\""))
}

/// A text without control codes, which could affect the terminal. Every character keeps its length
/// in bytes, so that positions stay correct.
fn harmless(text: &str) -> String {
    let replace = |c: char| match c {
        '\n' | '\t' => c,
        '\r' => ' ',
        c if c.is_control() && c.len_utf8() == 1 => '?',
        c if c.is_control() => '¿',
        c => c,
    };
    text.chars().map(replace).collect()
}

/// A text without the credentials in its URLs, wherever they are: the lines around a problem are shown,
/// too. Every byte stays where it is.
fn unquotable(mut text: String) -> String {
    for place in secrets_in(&text) {
        text.replace_range(place.clone(), &"*".repeat(place.len()));
    }
    text
}

/// A problem for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file, as the caller named it.
    pub file: String,
    /// The line, from 1; 0 if the problem is the file as a whole.
    pub line: usize,
    /// The column in characters, from 1; 0 if the problem is the file as a whole.
    pub column: usize,
    /// The kind of problem; stable.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

/// The texts of a manifest and of its included files, concatenated.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    all: String,
    files: Vec<(String, ByteRange)>,
}

impl Texts {
    /// The text of the manifest alone.
    pub(super) fn of(file: &str, text: &str) -> Texts {
        let mut texts = Texts::default();
        texts.add(file, text);
        texts
    }

    /// Adds a file; returns the offset of its first byte.
    pub(super) fn add(&mut self, file: &str, text: &str) -> usize {
        let start = self.all.len();
        self.all.push_str(&unquotable(harmless(text)));
        self.files.push((harmless(file), start..self.all.len()));
        start
    }

    /// File, line and column of a place.
    pub(super) fn position(&self, place: &ByteRange) -> (String, usize, usize) {
        let (file, text, place) = self.find(place);
        let (line, column) = position(text, place.start);
        (file.to_owned(), line, column)
    }

    /// Hides a secret that does not belong into the manifest from the report.
    fn mask(&mut self, place: &ByteRange) {
        let place = floor(&self.all, place.start)..floor(&self.all, place.end.min(self.all.len()));
        if place.start < place.end {
            self.all.replace_range(place.clone(), &"*".repeat(place.len()));
        }
    }

    /// The file and text that contain a position, and the position within it.
    fn find(&self, place: &ByteRange) -> (&str, &str, ByteRange) {
        let within = |range: &ByteRange| range.start <= place.start && place.start <= range.end;
        // Search from the last: an empty file ends where it begins.
        let found = self.files.iter().rev().find(|(_, range)| within(range)).or(self.files.first());
        let Some((file, range)) = found else { return ("", "", 0..0) };
        let text = self.all.get(range.clone()).unwrap_or_default();
        (file, text, fit(text, &(place.start - range.start..place.end.saturating_sub(range.start))))
    }
}

/// A rejected manifest with all its problems.
#[derive(Clone, Debug)]
pub struct Rejection {
    texts: Texts,
    problems: Vec<ManifestProblem>,
    /// The number of problems beyond the reported ones.
    unreported: usize,
}

impl Rejection {
    /// The rejection of a file; the problems are sorted by position.
    pub(super) fn new(file: &str, source: &str, problems: Vec<ManifestProblem>) -> Rejection {
        Rejection::of(Texts::of(file, source), problems)
    }

    /// The rejection of a file and its included files.
    pub(super) fn of(mut texts: Texts, mut problems: Vec<ManifestProblem>) -> Rejection {
        for problem in &mut problems {
            problem.message = mask(&harmless(&problem.message)).into_owned();
            if let ("secret", Some(place)) = (problem.code, &problem.place) {
                texts.mask(place);
            }
        }
        problems.sort_by_key(|problem| problem.place.as_ref().map_or(0, |place| place.start));
        let unreported = problems.len().saturating_sub(REPORTED_MAX);
        problems.truncate(REPORTED_MAX);
        Rejection { texts, problems, unreported }
    }

    /// The number of problems.
    #[must_use]
    pub fn count(&self) -> usize {
        self.problems.len() + self.unreported
    }

    /// The problems for programs, up to a limit.
    pub fn diagnostics(&self) -> impl Iterator<Item = Diagnostic> {
        self.problems.iter().map(|problem| {
            let (file, text, place) = self.texts.find(problem.place.as_ref().unwrap_or(&(0..0)));
            let (line, column) = problem.place.as_ref().map_or((0, 0), |_| position(text, place.start));
            Diagnostic {
                file: file.to_owned(),
                line,
                column,
                code: problem.code,
                message: problem.message.clone(),
                help: problem.help.clone(),
            }
        })
    }

    /// The problems as text, each with the lines in question, up to a limit.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let mut text = String::new();
        for problem in &self.problems {
            text.push_str(&self.show(problem, &renderer));
            text.push_str("\n\n");
        }
        if self.unreported > 0 {
            text.push_str(&format!("and {} more\n\n", self.unreported));
        }
        text
    }

    fn show(&self, problem: &ManifestProblem, renderer: &Renderer) -> String {
        let title = Level::ERROR.primary_title(&problem.message).id(problem.code);
        let mut groups = Vec::new();
        let (file, text, place) = self.texts.find(problem.place.as_ref().unwrap_or(&(0..0)));
        let origin = Origin::path(file);
        match &problem.place {
            None => groups.push(title.element(origin)),
            Some(_) => {
                let window = window(text, &place);
                if window.text.len() > SNIPPET_BYTES_MAX {
                    let (line, column) = position(text, place.start);
                    groups.push(title.element(origin.line(line).char_column(column)));
                } else {
                    let snippet = Snippet::source(window.text)
                        .path(file)
                        .line_start(window.line)
                        .fold(false)
                        .annotation(AnnotationKind::Primary.span(window.place));
                    groups.push(title.element(snippet));
                }
            }
        }
        if !problem.help.is_empty() {
            groups.push(Group::with_title(Level::HELP.secondary_title(&problem.help)));
        }
        renderer.render(&groups)
    }
}

/// A part of the source: the lines around a position.
struct Window<'a> {
    text: &'a str,
    /// The number of its first line, from 1.
    line: usize,
    place: ByteRange,
}

/// The lines around a position. The renderer shortens lines that are too wide.
fn window<'a>(source: &'a str, place: &ByteRange) -> Window<'a> {
    let mut start = line_start(source, place.start);
    for _ in 0..CONTEXT_LINES {
        start = line_start(source, start.saturating_sub(1));
    }
    let mut end = line_end(source, place.end);
    for _ in 0..CONTEXT_LINES {
        end = line_end(source, end.saturating_add(1).min(source.len()));
    }
    let (line, _) = position(source, start);
    let text = source.get(start..end).unwrap_or_default();
    Window { text, line, place: place.start - start..place.end.min(end) - start }
}

/// Clamps a position to the source, to character boundaries and to one line.
fn fit(source: &str, place: &ByteRange) -> ByteRange {
    let start = floor(source, place.start.min(source.len()));
    let end = floor(source, place.end.clamp(start, source.len()));
    start..end.min(line_end(source, start))
}

/// The nearest character boundary at or before `at`.
fn floor(source: &str, at: usize) -> usize {
    source.floor_char_boundary(at)
}

fn line_start(source: &str, at: usize) -> usize {
    source.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1)
}

fn line_end(source: &str, at: usize) -> usize {
    source.get(at..).and_then(|after| after.find('\n')).map_or(source.len(), |newline| at + newline)
}

/// Line and column of a byte, both from 1, the column in characters.
fn position(source: &str, at: usize) -> (usize, usize) {
    let before = source.get(..at).unwrap_or_default();
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    (line, column)
}
