//! Lists keys in order, page by page.
//!
//! A listing is in the byte order of the keys for every kind of store, so that two listings can be
//! compared and an interrupted one can continue. A bucket lists in that order. A directory is
//! walked folder by folder, each sorted with its folders as `name/`, which gives the same order;
//! memory is bounded by the largest folder. A store with spread keys is 256 such listings, merged.

use super::{ObjectStoreClient, listing, meta};
use crate::store::key::{self, KeySpread, SHARDS};
use crate::store::{Meta, StoreError};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::ObjectMeta;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use tidegate_core::Code;

/// The most shards whose first page is requested concurrently.
const SHARDS_AT_ONCE: usize = 32;

/// Objects in order.
pub(super) type Metas = BoxStream<'static, Result<Meta, StoreError>>;

impl ObjectStoreClient {
    /// All objects under a folder, or all if it is empty, in key order.
    pub fn list(&self, folder: &str) -> BoxStream<'static, Result<Meta, StoreError>> {
        let folder = folder.trim_end_matches('/');
        if !folder.is_empty()
            && let Err(bad) = key::check(folder)
        {
            let error = StoreError::local(&bad.key, Code::BAD_REQUEST, bad.why);
            return stream::iter([Err(error)]).boxed();
        }
        match self.0.spread {
            KeySpread::None => self.walk(format!("{}{folder}", self.0.base)),
            KeySpread::Hash => {
                let shard = |n| self.walk(format!("{}{}{folder}", self.0.base, key::shard(n)));
                merge((0..SHARDS).map(shard).collect())
            }
        }
    }

    /// All objects under a physical prefix.
    fn walk(&self, physical_prefix: String) -> Metas {
        let physical_prefix = physical_prefix.trim_end_matches('/').to_owned();
        match self.0.backend.pages.clone() {
            Some(pages) => self.pages(pages, physical_prefix),
            None => self.folders(physical_prefix),
        }
    }

    /// The metadata of a found object; `None` if it is not of this store's layout.
    fn shown(&self, found: &ObjectMeta) -> Option<Meta> {
        let physical_key = listing::original(found.location.as_ref());
        let after = physical_key.strip_prefix(self.0.base.as_str())?;
        Some(meta(self.0.spread.original(after)?, found))
    }

    fn pages(&self, pages: Arc<dyn PaginatedListStore>, physical_prefix: String) -> Metas {
        let prefix = (!physical_prefix.is_empty()).then(|| format!("{physical_prefix}/"));
        let begin = (self.clone(), Some(None::<String>));
        let all = stream::try_unfold(begin, move |(store, token)| {
            let (pages, prefix, physical_prefix) = (pages.clone(), prefix.clone(), physical_prefix.clone());
            async move {
                let Some(token) = token else { return Ok(None) };
                let ask = || {
                    let options =
                        PaginatedListOptions { page_token: token.clone(), ..PaginatedListOptions::default() };
                    async { Ok(pages.list_paginated(prefix.as_deref(), options).await?) }
                };
                let page = store.call(&physical_prefix, &format!("{physical_prefix}/"), ask).await?;
                if page.page_token.is_some() && page.page_token == token {
                    let why = "the listing loops";
                    return Err(StoreError::local(&physical_prefix, Code::UNEXPECTED_BODY, why));
                }
                let found: Vec<_> =
                    page.result.objects.iter().filter_map(|o| store.shown(o)).map(Ok).collect();
                Ok(Some((stream::iter(found), (store, page.page_token.map(Some)))))
            }
        });
        all.try_flatten().boxed()
    }

    fn folders(&self, physical_prefix: String) -> Metas {
        let begin = (self.clone(), VecDeque::from([ListingEntry::Folder(physical_prefix)]));
        stream::try_unfold(begin, |(store, mut left)| async move {
            while let Some(entry) = left.pop_front() {
                match entry {
                    ListingEntry::Object(found) => {
                        if let Some(shown) = store.shown(&found) {
                            return Ok(Some((shown, (store, left))));
                        }
                    }
                    ListingEntry::Folder(physical_prefix) => {
                        let mut inside = store.folder(&physical_prefix).await?;
                        inside.sort_by_cached_key(|entry| Reverse(entry.name()));
                        for entry in inside {
                            left.push_front(entry);
                        }
                    }
                }
            }
            Ok(None)
        })
        .boxed()
    }

    async fn folder(&self, physical_prefix: &str) -> Result<Vec<ListingEntry>, StoreError> {
        let path = super::path(physical_prefix, physical_prefix)?;
        let path = (!physical_prefix.is_empty()).then_some(path);
        let objects = &self.0.backend.objects;
        let ask = || async { Ok(objects.list_with_delimiter(path.as_ref()).await?) };
        let found = self.call(physical_prefix, &format!("{physical_prefix}/"), ask).await?;
        let folders = found.common_prefixes.into_iter().map(|p: Path| ListingEntry::Folder(p.into()));
        Ok(folders.chain(found.objects.into_iter().map(ListingEntry::Object)).collect())
    }
}

/// One entry of a folder listing.
enum ListingEntry {
    Folder(String),
    Object(ObjectMeta),
}

impl ListingEntry {
    /// The sort key.
    fn name(&self) -> String {
        match self {
            ListingEntry::Folder(physical_prefix) => format!("{physical_prefix}/"),
            ListingEntry::Object(found) => found.location.to_string(),
        }
    }
}

/// A listing with its first object read ahead.
type StartedListing = (Option<Meta>, Metas);

fn begin(mut list: Metas) -> BoxFuture<'static, Result<StartedListing, StoreError>> {
    Box::pin(async move { Ok((list.try_next().await?, list)) })
}

/// Merges sorted listings.
fn merge(lists: Vec<Metas>) -> Metas {
    let heads = stream::iter(lists).map(begin).buffered(SHARDS_AT_ONCE).boxed();
    let merged = async move {
        let open: Vec<StartedListing> = heads.try_collect().await?;
        let heads =
            open.iter().enumerate().filter_map(|(n, (head, _))| Some((head.as_ref()?.key.clone(), n)));
        let heap: BinaryHeap<_> = heads.map(Reverse).collect();
        Ok(stream::try_unfold((heap, open), |(mut heap, mut open)| async move {
            let Some(Reverse((_, n))) = heap.pop() else { return Ok(None) };
            let Some((head, list)) = open.get_mut(n) else { return Ok(None) };
            let next = list.try_next().await?;
            if let Some(next) = &next {
                heap.push(Reverse((next.key.clone(), n)));
            }
            let out = std::mem::replace(head, next);
            Ok(out.map(|out| (out, (heap, open))))
        }))
    };
    stream::once(merged).try_flatten().boxed()
}
