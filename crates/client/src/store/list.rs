//! Keys in order, page by page.
//!
//! A list is in the order of the bytes of the keys, whatever the store, so that two lists can be
//! compared and a walk can go on where it stopped. A bucket lists in that order by itself. A
//! directory is walked folder by folder, each sorted with its folders as `name/`, which is the same
//! order; memory is bounded by the largest folder. A spread store is 256 such lists, merged.

use super::key::{self, KeySpread, SHARDS};
use super::{Meta, Store, StoreError, meta};
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

/// Shards whose first page is asked for at once.
const SHARDS_AT_ONCE: usize = 32;

/// Objects in order.
pub(super) type Metas = BoxStream<'static, Result<Meta, StoreError>>;

impl Store {
    /// All objects under a folder, or all of them if it is empty, in the order of their keys.
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

    /// All objects under a kept folder.
    fn walk(&self, kept: String) -> Metas {
        let kept = kept.trim_end_matches('/').to_owned();
        match self.0.backend.pages.clone() {
            Some(pages) => self.pages(pages, kept),
            None => self.folders(kept),
        }
    }

    /// What is shown of a found object; `None` for what is not of this store's layout.
    fn shown(&self, found: &ObjectMeta) -> Option<Meta> {
        let kept = found.location.as_ref().strip_prefix(self.0.base.as_str())?;
        Some(meta(self.0.spread.original(kept)?, found))
    }

    fn pages(&self, pages: Arc<dyn PaginatedListStore>, kept: String) -> Metas {
        let prefix = (!kept.is_empty()).then(|| format!("{kept}/"));
        let begin = (self.clone(), Some(None::<String>));
        let all = stream::try_unfold(begin, move |(store, token)| {
            let (pages, prefix, kept) = (pages.clone(), prefix.clone(), kept.clone());
            async move {
                let Some(token) = token else { return Ok(None) };
                let ask = || {
                    let options =
                        PaginatedListOptions { page_token: token.clone(), ..PaginatedListOptions::default() };
                    async { Ok(pages.list_paginated(prefix.as_deref(), options).await?) }
                };
                let page = store.call(&kept, &format!("{kept}/"), ask).await?;
                if page.page_token.is_some() && page.page_token == token {
                    let why = "the list goes round in a circle";
                    return Err(StoreError::local(&kept, Code::UNEXPECTED_BODY, why));
                }
                let found: Vec<_> =
                    page.result.objects.iter().filter_map(|o| store.shown(o)).map(Ok).collect();
                Ok(Some((stream::iter(found), (store, page.page_token.map(Some)))))
            }
        });
        all.try_flatten().boxed()
    }

    fn folders(&self, kept: String) -> Metas {
        let begin = (self.clone(), VecDeque::from([Entry::Folder(kept)]));
        stream::try_unfold(begin, |(store, mut left)| async move {
            while let Some(entry) = left.pop_front() {
                match entry {
                    Entry::Object(found) => {
                        if let Some(shown) = store.shown(&found) {
                            return Ok(Some((shown, (store, left))));
                        }
                    }
                    Entry::Folder(kept) => {
                        let mut inside = store.folder(&kept).await?;
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

    async fn folder(&self, kept: &str) -> Result<Vec<Entry>, StoreError> {
        let path = super::path(kept, kept)?;
        let path = (!kept.is_empty()).then_some(path);
        let objects = &self.0.backend.objects;
        let ask = || async { Ok(objects.list_with_delimiter(path.as_ref()).await?) };
        let found = self.call(kept, &format!("{kept}/"), ask).await?;
        let folders = found.common_prefixes.into_iter().map(|p: Path| Entry::Folder(p.into()));
        Ok(folders.chain(found.objects.into_iter().map(Entry::Object)).collect())
    }
}

/// What lies in a folder.
enum Entry {
    Folder(String),
    Object(ObjectMeta),
}

impl Entry {
    /// What it is sorted by.
    fn name(&self) -> String {
        match self {
            Entry::Folder(kept) => format!("{kept}/"),
            Entry::Object(found) => found.location.to_string(),
        }
    }
}

/// A list, and its first object taken off.
type Begun = (Option<Meta>, Metas);

fn begin(mut list: Metas) -> BoxFuture<'static, Result<Begun, StoreError>> {
    Box::pin(async move { Ok((list.try_next().await?, list)) })
}

/// Many sorted lists as one.
fn merge(lists: Vec<Metas>) -> Metas {
    let heads = stream::iter(lists).map(begin).buffered(SHARDS_AT_ONCE).boxed();
    let merged = async move {
        let open: Vec<Begun> = heads.try_collect().await?;
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
