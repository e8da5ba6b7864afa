//! Whether the paging of a service goes in circles: the same link twice, the same features for two
//! pages, nothing but empty pages, or page after page without a feature that is new.

use super::super::page::FeaturePage;
use super::super::position::NextPage;
use super::digest;
use std::collections::HashSet;

/// Pages without a feature, one after another.
const EMPTY_MAX: u32 = 100;
/// Pages with features of which none is new, one after another. Features that are added further up
/// make some of them; a service that ignores where a page shall begin makes nothing else.
const STALE_MAX: u64 = 10;
/// Steps back without a feature that is new, one after another. Features that are removed while they
/// are read make some of them.
const STEPS_BACK_MAX: u32 = 100;

/// What was asked for and received in one pass over a layer.
#[derive(Debug, Default)]
pub(super) struct LoopWatch {
    links: HashSet<[u8; 16]>,
    pages: HashSet<[u8; 16]>,
    /// The features of the first page that have no identifier. Whether others came before is known.
    first: Option<HashSet<[u8; 16]>>,
    empty: u32,
    stale: u64,
    /// Steps back since the last feature that was new.
    steps_back: u32,
}

impl LoopWatch {
    /// A page came for a step, in a layer that may have changed.
    ///
    /// # Errors
    /// What shows a loop.
    pub(super) fn came(
        &mut self,
        step: &NextPage,
        page: &FeaturePage,
        changed: bool,
        stepped_back: bool,
    ) -> Result<(), &'static str> {
        if let Some(NextPage::Link { url, body }) = &page.next {
            let link = digest([url.as_bytes(), body.as_deref().unwrap_or_default().as_bytes()]);
            if !self.links.insert(link) {
                return Err("the link to the next page repeats an earlier one");
            }
        }
        // A page of one feature proves little: it is the overlap, or the only one of a small server.
        let few = if matches!(step, NextPage::Offset { overlap: false, .. }) { 0 } else { 1 };
        if page.features.len() > few && !stepped_back {
            let known = !self.pages.insert(digest(page.features.iter().map(|f| page.print(f))));
            // In a layer that changes, features move to another page, and pages may come twice: there only
            // page after page without a new feature is a loop.
            if known && page.features.len() > 1 && !changed {
                return Err("the features repeat an earlier page");
            }
        }
        self.empty = if page.features.is_empty() { self.empty + 1 } else { 0 };
        if self.empty > EMPTY_MAX { Err("too many empty pages in a row") } else { Ok(()) }
    }

    /// The place was lost, and the next page is one that came before: its features are known, and so
    /// are those behind it.
    ///
    /// # Errors
    /// What shows a loop.
    pub(super) fn rewound(&mut self) -> Result<(), &'static str> {
        self.stale = 0;
        self.steps_back += 1;
        if self.steps_back > STEPS_BACK_MAX {
            Err("no feature is new, step back after step back")
        } else {
            Ok(())
        }
    }

    /// Of the features of a page with an identifier, so many are new. After a step back, `again`
    /// pages may come a second time.
    ///
    /// # Errors
    /// What shows a loop.
    pub(super) fn brought(
        &mut self,
        step: &NextPage,
        page: &FeaturePage,
        new: u64,
        again: u64,
    ) -> Result<(), &'static str> {
        let overlap = usize::from(matches!(step, NextPage::Offset { overlap: true, .. }));
        if page.features.len() <= overlap {
            return Ok(());
        }
        let mut nameless = page.features.iter().filter(|f| f.id.is_none()).map(|f| digest([page.feature(f)]));
        let is_new = match &self.first {
            None => {
                self.first = Some(nameless.collect());
                true
            }
            Some(first) => new > 0 || nameless.any(|feature| !first.contains(&feature)),
        };
        if is_new {
            (self.stale, self.steps_back) = (0, 0);
        } else {
            self.stale += 1;
        }
        if self.stale > STALE_MAX.saturating_add(again) {
            return Err("no feature is new, page after page");
        }
        Ok(())
    }
}
