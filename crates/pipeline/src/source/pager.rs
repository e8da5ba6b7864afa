//! The pager that all services share: from page to page, each feature once, none left out.
//!
//! Three ways of going on, by what the service offers:
//!
//! - **By keys** (ArcGIS object ids): the pages are disjoint ranges of keys. What comes or goes
//!   between two requests moves nothing else.
//! - **By offset** (WFS, ArcGIS): each page begins with the last feature of the one before. If its
//!   first feature is not a known one, features were removed further up and the place moved: the
//!   page is dropped and asked for further up, until it begins with a known feature. If features
//!   were added, some come again and are left out by their identifier. This holds if the service
//!   sorts by a unique key.
//! - **By link** (OGC API Features, STAC): the link is opaque, and most servers put an offset into
//!   it. What comes again is left out. If the layer has shown that features go, equal counts prove
//!   nothing (each one that went pushed another past a seam), so the layer is read once more, which
//!   brings only what was missed, until a pass brings nothing new.
//!
//! Where the next requests can be foreseen (keys, offsets), some are under way at once. They are
//! taken in order, and dropped when the page before leads elsewhere. By link it is one, asked for
//! while the page before is kept.

mod left;
mod loops;

use super::error::{SourceError, Trouble};
use super::feature_id;
use super::identifiers::{Added, IdentifierHash, IdentifierSet};
use super::page::FeaturePage;
use super::position::{FeatureTally, NextPage, Position, VERSION};
use super::reconcile::{Agreement, CountTolerance, Judged, PASSES_MAX, Pass, judge};
use super::service::PagedLayer;
use super::wire::{PageReader, Wire};
use loops::LoopWatch;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::sync::Arc;
use tidegate_core::Code;
use tidegate_geo::Crs;
use tokio::task::JoinHandle;

/// How pages are taken.
#[derive(Clone, Copy, Debug)]
pub struct PagerConfig {
    /// Requests under way at once, where they can be foreseen.
    pub at_once: usize,
    /// How far received may be from declared.
    pub tolerance: CountTolerance,
}

/// A layer of a paged service, page by page.
pub struct Pager {
    pages: Arc<PageReader>,
    service: Arc<dyn PagedLayer>,
    config: PagerConfig,
    job: String,
    next: Option<NextPage>,
    ahead: VecDeque<(NextPage, JoinHandle<Result<FeaturePage, SourceError>>)>,
    tally: FeatureTally,
    pass: Pass,
    /// In this pass, and in those before.
    seen: IdentifierSet,
    before: Option<IdentifierSet>,
    /// Whether every feature so far had an identifier.
    known: bool,
    loops: LoopWatch,
    /// How far the last step back went, and whether this page is asked for because of one.
    back: u64,
    stepped: bool,
    /// The most features that a page had.
    full: u64,
    /// Pages say how many features there are, or whether more follow.
    says: bool,
    /// A page told another number than the service when it is asked for it.
    misled: bool,
    /// The last feature received.
    last: Option<String>,
    agreement: Option<Agreement>,
    crs: Option<String>,
    /// The field that gets the identifiers of features; empty if none is needed.
    id_field: Option<String>,
}

/// What one page brought.
pub struct Pulled {
    page: FeaturePage,
    fresh: Vec<usize>,
    /// The marks of those new features that the position does not carry. Whoever resumes from a
    /// position names all marks up to it.
    pub marks: Vec<IdentifierHash>,
    /// Where the source stands after it.
    pub position: Position,
}

/// What is new on a page.
struct Sifted {
    /// The places of the features that no pass has brought.
    fresh: Vec<usize>,
    /// The marks of those.
    marks: Vec<IdentifierHash>,
    /// How many are new in this pass.
    new: u64,
    /// How many of them have an identifier.
    named: u64,
}

impl Pulled {
    /// The new features: their text as GeoJSON.
    pub fn features(&self) -> impl Iterator<Item = &[u8]> {
        self.fresh.iter().filter_map(|at| self.page.features.get(*at)).map(|f| self.page.feature(f))
    }

    /// How many are new.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fresh.len()
    }

    /// Whether none is new.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fresh.is_empty()
    }
}

impl Pager {
    /// Begins, or goes on from a position of the same job.
    pub(super) async fn open(
        wire: Wire,
        service: Arc<dyn PagedLayer>,
        config: PagerConfig,
        job: String,
        from: Option<Position>,
    ) -> Result<Pager, SourceError> {
        let pages = Arc::new(PageReader::new(wire, Arc::clone(&service)));
        let mut pager = Pager {
            pages,
            config,
            job,
            next: Some(service.first()),
            ahead: VecDeque::new(),
            tally: FeatureTally::default(),
            pass: Pass::default(),
            seen: IdentifierSet::default(),
            before: None,
            known: true,
            loops: LoopWatch::default(),
            back: 0,
            stepped: false,
            full: 0,
            says: false,
            misled: false,
            last: None,
            agreement: None,
            crs: None,
            id_field: None,
            service,
        };
        match from {
            Some(from) if from.job != pager.job => {
                return Err(SourceError::setup(
                    "the saved position belongs to another job; start again without --resume",
                ));
            }
            Some(from) => {
                pager.tally = from.tally;
                // How many there were when this pass began is not known any more.
                pager.pass.first = from.tally.latest;
                pager.seen = from.seen.map(IdentifierSet::from).unwrap_or_default();
                pager.before = from.before.map(IdentifierSet::from);
                if let Some(last) = &from.last {
                    pager.seen.insert(last);
                }
                pager.last = from.last;
                pager.id_field = from.id_field;
                pager.crs = from.crs;
                // Which features a further pass has met is not known either: it begins anew.
                if from.tally.passes > 1 && from.next.is_some() {
                    pager.begin_pass();
                } else {
                    pager.next = from.next;
                }
            }
            // The pages themselves say it where they go on by links.
            None if matches!(pager.next, Some(NextPage::Link { .. })) => {}
            None => {
                let declared = pager.service.count(pager.wire()).await?;
                pager.tally.declared = declared;
                pager.tally.latest = declared;
                pager.pass.first = declared;
            }
        }
        Ok(pager)
    }

    /// The way to the service.
    #[must_use]
    pub fn wire(&self) -> &Wire {
        self.pages.wire()
    }

    /// The layer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.service.layer()
    }

    /// What was counted so far.
    #[must_use]
    pub fn tally(&self) -> &FeatureTally {
        &self.tally
    }

    /// How declared and received compare; known after the last page.
    #[must_use]
    pub fn agreement(&self) -> Option<Agreement> {
        self.agreement
    }

    /// The reference system, as the pages or the service name it.
    #[must_use]
    pub fn crs(&self) -> Option<String> {
        self.crs.clone().or_else(|| self.service.crs().map(|crs| crs.to_string()))
    }

    /// Where the layer is, in degrees on WGS 84, as the service declares it.
    #[must_use]
    pub fn extent(&self) -> Option<tidegate_geo::Bounds> {
        self.service.extent()
    }

    /// The fields, as the service describes them.
    #[must_use]
    pub fn described(&self) -> Option<&tidegate_geo::Schema> {
        self.service.described()
    }

    /// A feature (its text, as it was pulled) that was received before the position from which
    /// this goes on. Needed only where [`Position::is_complete`] says no.
    pub fn remember(&mut self, feature: &[u8]) {
        if let Some(id) = self.service.identity(feature) {
            self.before.as_mut().unwrap_or(&mut self.seen).insert(&id);
        }
    }

    /// The mark of such a feature.
    pub fn remember_mark(&mut self, mark: IdentifierHash) {
        self.before.as_mut().unwrap_or(&mut self.seen).insert_mark(mark);
    }

    /// Begins at the first page again and leaves out what is known. For a position whose link the
    /// service does not know any more.
    pub fn rewind(&mut self) {
        self.flush();
        self.next = Some(self.service.first());
        self.begin_pass();
    }

    /// The next page; `None` after the last, when declared and received agree.
    ///
    /// # Errors
    /// When a page cannot be had, the service goes in circles, or received is not declared. The
    /// last position stays good.
    pub async fn next(&mut self) -> Result<Option<Pulled>, SourceError> {
        loop {
            let Some(step) = self.next.clone() else {
                if self.end_pass().await? {
                    return Ok(None);
                }
                continue;
            };
            let page = match self.take(&step).await {
                Err(why) if self.tally.pages == 0 && why.is_forgotten() && self.service.relent() => {
                    self.next = Some(self.service.first());
                    continue;
                }
                taken => taken?,
            };
            self.tally.pages += 1;
            if self.tally.passes == 0 {
                self.tally.passes = 1;
            }
            self.says |= page.matched.is_some() || page.more.is_some();
            if let Some(matched) = page.matched {
                self.hear(matched).await?;
            }
            self.same_system(&step, &page)?;
            if self.lost(&step, &page) {
                let stepped = self.loops.rewound();
                stepped.map_err(|what| self.circle(&step, what))?;
                continue;
            }
            let changed = self.tally.moved || self.tally.declared != self.tally.latest;
            let stepped = std::mem::take(&mut self.stepped);
            let came = self.loops.came(&step, &page, changed, stepped);
            came.map_err(|what| self.circle(&step, what))?;
            let Sifted { fresh, marks, new, named } = self.sift(&page);
            // A step back may have led to the first page.
            let again = if self.tally.moved { self.tally.in_pass / self.full.max(1) } else { 0 };
            let brought = self.loops.brought(&step, &page, named, again);
            brought.map_err(|what| self.circle(&step, what))?;
            self.next = self.after(&step, &page, new)?;
            self.start_next();
            self.id_field = self.id_field.take().or_else(|| feature_id::field_of(&page));
            let page = match self.id_field.as_deref() {
                None | Some("") => page,
                Some(field) => feature_id::put(page, field),
            };
            let position = self.position();
            return Ok(Some(Pulled { page, fresh, marks, position }));
        }
    }

    /// A page says how many features match. If that is another number than before, the service is
    /// asked: one that stands by its number, or tells none now, shows that the page is wrong, and not
    /// that the layer changed. MapServer tells on a short page that nothing follows, and a feature
    /// without geometry makes any page short.
    async fn hear(&mut self, matched: u64) -> Result<(), SourceError> {
        if self.misled {
            return Ok(());
        }
        let mut now = matched;
        if self.tally.latest.is_some_and(|latest| matched != latest) {
            let wire = self.wire().clone();
            match self.service.count(&wire).await? {
                Some(count) if Some(count) != self.tally.latest => now = count,
                _ => {
                    self.misled = true;
                    return Ok(());
                }
            }
        }
        self.tally.moved |= self.tally.latest.is_some_and(|latest| now != latest);
        self.pass.saw(self.tally.latest, Some(now));
        self.tally.latest = Some(now);
        self.tally.declared = self.tally.declared.or(Some(now));
        self.pass.first = self.pass.first.or(Some(now));
        Ok(())
    }

    /// All pages are in one system.
    fn same_system(&mut self, step: &NextPage, page: &FeaturePage) -> Result<(), SourceError> {
        let Some(named) = &page.crs else { return Ok(()) };
        if let Some(before) = self.crs.as_ref().filter(|_| !page.features.is_empty()) {
            let is_same = match (named.parse::<Crs>(), before.parse::<Crs>()) {
                (Ok(a), Ok(b)) => a == b || (a.is_wgs84() && b.is_wgs84()),
                _ => named == before,
            };
            if !is_same {
                let page = self.service.name(step);
                let message = format!("{page}: the page is in {named}, and those before are in {before}");
                return Err(SourceError::broken(Code::CRS_MISMATCH, message));
            }
        }
        self.crs.get_or_insert_with(|| named.clone());
        Ok(())
    }

    /// Where the source stands.
    #[must_use]
    pub fn position(&self) -> Position {
        let before = self.before.as_ref();
        Position {
            version: VERSION,
            job: self.job.clone(),
            next: self.next.clone(),
            tally: self.tally,
            seen: Some(self.seen.carry()),
            marked: self.seen.has_marks() || before.is_some_and(IdentifierSet::has_marks),
            before: before.map(IdentifierSet::carry),
            last: self.last.clone(),
            id_field: self.id_field.clone(),
            crs: self.crs.clone(),
        }
    }

    /// The page of a step: one that is under way, or a new one. Starts those that can be foreseen.
    async fn take(&mut self, step: &NextPage) -> Result<FeaturePage, SourceError> {
        if self.ahead.front().is_some_and(|(first, _)| first != step) {
            self.flush();
        }
        if self.ahead.is_empty() {
            self.start(step.clone());
        }
        // The first page comes alone: whoever only looks at a layer asks for no more.
        while self.tally.pages > 0 && self.ahead.len() < self.config.at_once.max(1) {
            let last = self.ahead.back().map(|(step, _)| step.clone());
            let Some(next) = last.and_then(|last| self.foresee(&last)) else { break };
            self.start(next);
        }
        let Some((_, going)) = self.ahead.pop_front() else {
            return Err(SourceError::broken(Code::UNKNOWN, "no page in flight"));
        };
        match going.await {
            Ok(page) => page,
            Err(e) => Err(SourceError::broken(Code::UNKNOWN, format!("internal error in a request: {e}"))),
        }
    }

    /// Asks for the page behind a link while this one is kept. As above, the first comes alone.
    fn start_next(&mut self) {
        if let Some(step @ NextPage::Link { .. }) = self.next.clone().filter(|_| self.tally.pages > 1) {
            self.start(step);
        }
    }

    fn start(&mut self, step: NextPage) {
        let (pages, asked) = (Arc::clone(&self.pages), step.clone());
        self.ahead.push_back((step, tokio::spawn(async move { pages.fetch(&asked).await })));
    }

    fn flush(&mut self) {
        for (_, going) in self.ahead.drain(..) {
            going.abort();
        }
    }

    /// The step after this one, if its page will be as expected.
    fn foresee(&self, step: &NextPage) -> Option<NextPage> {
        match step {
            NextPage::Offset { start, .. } => {
                let next = self.behind(*start, self.full);
                let NextPage::Offset { start, .. } = next else { return None };
                (self.full > 0 && start < self.tally.latest?).then_some(next)
            }
            NextPage::Keys { to, .. } => to.map(|to| self.service.range(to)),
            NextPage::Link { .. } => None,
        }
    }

    /// The step behind a page of so many features: it begins with the last of them, if that can
    /// be told from others and the page holds more than one.
    fn behind(&self, start: u64, had: u64) -> NextPage {
        let overlap = self.known && had > 1;
        NextPage::Offset { start: start + had - u64::from(overlap), overlap }
    }

    /// Whether the place was lost, because features were removed further up: then the next step
    /// leads there.
    fn lost(&mut self, step: &NextPage, page: &FeaturePage) -> bool {
        let NextPage::Offset { start, overlap } = step else { return false };
        let first = page.features.first().map(|f| f.id.as_deref());
        let unknown = match first {
            Some(Some(id)) => !self.seen.contains(id),
            Some(None) => false,
            // Nothing where a known feature was: they were removed.
            None => true,
        };
        if *start == 0 || !overlap || !unknown {
            self.back = 0;
            return false;
        }
        self.back = (self.back * 2).max(16).min(*start);
        self.tally.moved = true;
        self.tally.steps_back += 1;
        self.stepped = true;
        self.next = Some(NextPage::Offset { start: start - self.back, overlap: true });
        true
    }

    fn circle(&self, step: &NextPage, what: &str) -> SourceError {
        let message = format!("{}: {what}; the paging of the service loops", self.service.name(step));
        SourceError::broken(Code::PAGE_LOOP, message)
    }

    /// What is new on a page.
    fn sift(&mut self, page: &FeaturePage) -> Sifted {
        let mut fresh = Vec::with_capacity(page.features.len());
        let mut marks = Vec::new();
        let mut named = 0;
        let before = self.tally.in_pass;
        for (at, feature) in page.features.iter().enumerate() {
            let Some(id) = feature.id.as_deref() else {
                self.known = false;
                self.tally.in_pass += 1;
                fresh.push(at);
                continue;
            };
            let added = self.seen.insert(id);
            if added == Added::Known {
                self.tally.repeated += 1;
                self.pass.repeated += 1;
                continue;
            }
            self.tally.in_pass += 1;
            named += 1;
            if self.before.as_ref().is_some_and(|before| before.contains(id)) {
                continue;
            }
            if let Added::Marked(mark) = added {
                marks.push(mark);
            }
            fresh.push(at);
        }
        self.tally.received += fresh.len() as u64;
        self.pass.fresh += fresh.len() as u64;
        self.last =
            page.features.last().and_then(|f| f.id.as_deref()).map(str::to_owned).or(self.last.take());
        self.full = self.full.max(page.features.len() as u64);
        Sifted { fresh, marks, new: self.tally.in_pass - before, named }
    }

    /// Where to go on.
    fn after(
        &mut self,
        step: &NextPage,
        page: &FeaturePage,
        new: u64,
    ) -> Result<Option<NextPage>, SourceError> {
        let had = page.features.len() as u64;
        match step {
            NextPage::Link { .. } => Ok(page.next.clone()),
            NextPage::Offset { start, overlap } => {
                // The first feature was meant to come again.
                if *overlap && had > new {
                    self.tally.repeated = self.tally.repeated.saturating_sub(1);
                }
                let short = had < self.service.size();
                // Both signs, or one more request to see that nothing follows.
                let counted = self.tally.latest.is_none_or(|latest| start + had >= latest);
                let said = !self.misled && (page.matched == Some(start + had) || page.more == Some(false));
                let over = had <= u64::from(*overlap) || (short && said && counted);
                Ok((!over).then(|| self.behind(*start, had)))
            }
            NextPage::Keys { from, to } => {
                let outside = page
                    .features
                    .iter()
                    .find(|f| f.key.is_none_or(|key| key < *from || to.is_some_and(|to| key >= to)));
                if outside.is_some() {
                    let message = format!(
                        "{}: the service returned other keys than requested",
                        self.service.name(step)
                    );
                    return Err(SourceError::broken(Code::UNEXPECTED_BODY, message));
                }
                let last = page.features.iter().filter_map(|f| f.key).max();
                match (page.more, last.and_then(|last| last.checked_add(1))) {
                    (Some(true), Some(next)) => Ok(Some(NextPage::Keys { from: next, to: *to })),
                    (Some(true), None) => {
                        let message = format!(
                            "{}: the service announced more features but returned none",
                            self.service.name(step)
                        );
                        Err(SourceError::broken(Code::UNEXPECTED_BODY, message))
                    }
                    _ => Ok(to.map(|to| self.service.range(to))),
                }
            }
        }
    }

    /// Compares declared and received. True at the end, false when the layer is read once more.
    async fn end_pass(&mut self) -> Result<bool, SourceError> {
        self.flush();
        let wire = self.wire().clone();
        let keyed = matches!(self.service.first(), NextPage::Keys { .. });
        self.uncap();
        let differs = self.tally.latest.is_some_and(|latest| latest != self.tally.in_pass);
        if differs || self.tally.moved {
            let count = self.service.count(&wire).await?;
            self.tally.moved |= count.is_some() && count != self.tally.latest;
            self.pass.saw(self.tally.latest, count);
            self.tally.latest = count.or(self.tally.latest);
        }
        let linked = matches!(self.service.first(), NextPage::Link { .. });
        let pass = Pass { linked, known: self.known && !keyed, ..self.pass };
        let mut judged = judge(&self.tally, &pass, self.config.tolerance);
        if keyed && !matches!(judged, Judged::End(Agreement::Exact | Agreement::Undeclared)) {
            let (seen, before) = (&self.seen, self.before.as_ref());
            let received = |id: &str| seen.contains(id) || before.is_some_and(|b| b.contains(id));
            match self.service.missing(&wire, &received).await? {
                Some(missing) if !missing.is_empty() && self.tally.passes < PASSES_MAX => {
                    judged = Judged::Again;
                }
                Some(missing) => judged = Judged::End(self.by_keys(&missing)),
                None => {}
            }
        }
        let agreement = match judged {
            Judged::Again => {
                self.tally.passes += 1;
                self.next = Some(self.service.first());
                self.begin_pass();
                return Ok(false);
            }
            Judged::End(agreement) => agreement,
        };
        self.agreement = Some(agreement);
        let Agreement::Mismatch(off) = agreement else { return Ok(true) };
        let (had, latest) = (self.tally.in_pass, self.tally.latest.unwrap_or_default());
        let more = if had < latest { "missing" } else { "too many" };
        let message = format!(
            "{}: {latest} features declared, {had} received, {off} {more}; \
             use `tolerate` to accept a difference",
            self.service.layer()
        );
        Err(SourceError { trouble: Trouble::Mismatch, code: Code::COUNT_MISMATCH, message })
    }

    /// A count as large as the largest page is the most that the service sends at once and no count,
    /// if more came in the end. MapServer cuts `hits` of WFS 1.1 there.
    fn uncap(&mut self) {
        let offset = matches!(self.service.first(), NextPage::Offset { .. });
        let cut = self.tally.latest == Some(self.full) && self.tally.in_pass > self.full;
        if offset && cut && !self.tally.moved {
            (self.tally.declared, self.tally.latest, self.pass.first) = (None, None, None);
        }
    }

    /// With the keys at hand nothing is left to guess: all that stayed must have been received.
    fn by_keys(&self, missing: &[i64]) -> Agreement {
        let latest = self.tally.latest.unwrap_or_default();
        let off = missing.len() as u64;
        let still = !self.tally.moved && self.tally.declared == Some(latest);
        // Nobody came or went, all that are listed were received, and yet the count is another.
        let off = if off == 0 && still { self.tally.in_pass.abs_diff(latest) } else { off };
        let allowed = self.config.tolerance.of(latest);
        match off {
            0 => Agreement::Changed,
            off if off <= allowed => Agreement::Tolerated(off),
            off => Agreement::Mismatch(off),
        }
    }

    fn begin_pass(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        match &mut self.before {
            Some(before) => before.absorb(seen),
            None => self.before = Some(seen),
        }
        self.loops = LoopWatch::default();
        (self.back, self.stepped) = (0, false);
        self.tally.in_pass = 0;
        self.pass = Pass { first: self.tally.latest, ..Pass::default() };
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.flush();
    }
}

fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let whole: [u8; 32] = hash.finalize().into();
    whole.first_chunk().copied().unwrap_or_default()
}
