//! What is wrong with a manifest, where, and what to do about it.
//!
//! A [`ManifestProblem`] is one fault at one place. A [`Rejection`] is a file with all its faults: it
//! shows itself as text with the lines in question, or as [`Diagnostic`]s for machines. Names and
//! values out of the file are escaped and cut before they are shown, because a file may hold
//! anything, control codes of the terminal included.

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde::Serialize;

use super::tree::ByteRange;

/// How many problems are reported; the rest is counted.
const REPORTED_MAX: usize = 50;
/// Longer lines are not shown: nobody could read them, and a file may be one line of a megabyte.
const SNIPPET_BYTES_MAX: usize = 10_000;
/// How many lines are shown before and after the one in question.
const CONTEXT_LINES: usize = 1;

/// One fault at one place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ManifestProblem {
    pub(super) code: &'static str,
    pub(super) place: Option<ByteRange>,
    pub(super) message: String,
    pub(super) help: String,
}

impl ManifestProblem {
    /// A fault at a place.
    pub(super) fn new(code: &'static str, place: ByteRange, message: impl Into<String>) -> ManifestProblem {
        ManifestProblem { code, place: Some(place), message: message.into(), help: String::new() }
    }

    /// A fault of the file as a whole.
    pub(super) fn whole(code: &'static str, message: impl Into<String>) -> ManifestProblem {
        ManifestProblem { code, place: None, message: message.into(), help: String::new() }
    }

    /// What to do about it.
    pub(super) fn help(mut self, help: impl Into<String>) -> ManifestProblem {
        self.help = help.into();
        self
    }
}

/// A text out of the file, fit to be shown: in backticks, escaped, cut.
pub(super) fn quoted(text: &str) -> String {
    const SHOWN: usize = 40;
    let shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("`{}{more}`", shown.replace("\\'", "'").replace("\\\"", "\""))
}

/// A text without control codes, which could move the cursor or worse. Every character keeps its
/// length in bytes, so that places stay right.
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

/// A problem as a machine reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file, as it was named by the caller.
    pub file: String,
    /// The line, counted from 1; 0 if the problem is the file as a whole.
    pub line: usize,
    /// The column in characters, counted from 1; 0 if the problem is the file as a whole.
    pub column: usize,
    /// What kind of problem it is; stable.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

/// The texts of a manifest and of what it includes, end to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    all: String,
    files: Vec<(String, ByteRange)>,
}

impl Texts {
    /// Only the manifest itself.
    pub(super) fn of(file: &str, text: &str) -> Texts {
        let mut texts = Texts::default();
        texts.add(file, text);
        texts
    }

    /// Adds a file; the byte at which it begins.
    pub(super) fn add(&mut self, file: &str, text: &str) -> usize {
        let start = self.all.len();
        self.all.push_str(&harmless(text));
        self.files.push((harmless(file), start..self.all.len()));
        start
    }

    /// Hides what should not have been written there, from this report and from the log it ends in.
    fn mask(&mut self, place: &ByteRange) {
        let place = floor(&self.all, place.start)..floor(&self.all, place.end.min(self.all.len()));
        if place.start < place.end {
            self.all.replace_range(place.clone(), &"*".repeat(place.len()));
        }
    }

    /// The file and text that a place lies in, and the place within it.
    fn find(&self, place: &ByteRange) -> (&str, &str, ByteRange) {
        let within = |range: &ByteRange| range.start <= place.start && place.start <= range.end;
        // The last one: an empty file ends where it begins.
        let found = self.files.iter().rev().find(|(_, range)| within(range)).or(self.files.first());
        let Some((file, range)) = found else { return ("", "", 0..0) };
        let text = self.all.get(range.clone()).unwrap_or_default();
        (file, text, fit(text, &(place.start - range.start..place.end.saturating_sub(range.start))))
    }
}

/// A manifest that was refused, with all that is wrong with it.
#[derive(Clone, Debug)]
pub struct Rejection {
    texts: Texts,
    problems: Vec<ManifestProblem>,
    unreported: usize,
}

impl Rejection {
    /// The rejection of a file; the problems are put in the order of the file.
    pub(super) fn new(file: &str, source: &str, problems: Vec<ManifestProblem>) -> Rejection {
        Rejection::of(Texts::of(file, source), problems)
    }

    /// The rejection of a file and what it includes.
    pub(super) fn of(mut texts: Texts, mut problems: Vec<ManifestProblem>) -> Rejection {
        for problem in &mut problems {
            problem.message = harmless(&problem.message);
            if let ("secret", Some(place)) = (problem.code, &problem.place) {
                texts.mask(place);
            }
        }
        problems.sort_by_key(|problem| problem.place.as_ref().map_or(0, |place| place.start));
        let unreported = problems.len().saturating_sub(REPORTED_MAX);
        problems.truncate(REPORTED_MAX);
        Rejection { texts, problems, unreported }
    }

    /// How many problems there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.problems.len() + self.unreported
    }

    /// The problems, for machines; of a great many only the first.
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

    /// The problems as text, each with the lines in question; of a great many only the first.
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

/// A part of the source: the lines round a place.
struct Window<'a> {
    text: &'a str,
    line: usize,
    place: ByteRange,
}

/// The lines round a place. The renderer shortens lines that are too wide.
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

/// The place moved into the source, onto borders of characters, and kept within one line.
fn fit(source: &str, place: &ByteRange) -> ByteRange {
    let start = floor(source, place.start.min(source.len()));
    let end = floor(source, place.end.clamp(start, source.len()));
    start..end.min(line_end(source, start))
}

/// The nearest border of a character at or before `at`.
fn floor(source: &str, at: usize) -> usize {
    source.floor_char_boundary(at)
}

fn line_start(source: &str, at: usize) -> usize {
    source.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1)
}

fn line_end(source: &str, at: usize) -> usize {
    source.get(at..).and_then(|after| after.find('\n')).map_or(source.len(), |newline| at + newline)
}

/// Line and column of a byte, both counted from 1, the column in characters.
fn position(source: &str, at: usize) -> (usize, usize) {
    let before = source.get(..at).unwrap_or_default();
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    (line, column)
}
