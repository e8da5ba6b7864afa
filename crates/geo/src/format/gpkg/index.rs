//! The spatial index and the extent of a layer that is written into.
//!
//! A run that ends packs the index at its end, which is faster than to maintain it. A writer that does
//! not end, such as a worker, keeps both with every commit: nobody else would make them, and packing
//! needs 40 bytes of memory per row.

use super::super::hilbert::Collector;
use super::ddl::EXTENSIONS;
use super::read::body;
use super::store::Store;
use super::{quote, rtree};
use crate::bounds::Bounds;
use crate::error::Error;

/// The memory for pages of the file of a writer that does not end, in KiB.
const CACHE_KIB: u32 = 4 << 10;

/// The bounds of both.
pub(super) fn union(one: Option<Bounds>, other: Option<Bounds>) -> Option<Bounds> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.union(other)),
        (one, other) => one.or(other),
    }
}

impl Store {
    /// Keeps spatial index and extent with every commit from now on. A missing index is made of the rows
    /// that are there. The extent only grows until [`Store::finish`].
    ///
    /// # Errors
    /// If another process is writing, or the disk fails.
    pub fn keep_index(&mut self) -> Result<(), Error> {
        self.db.execute_batch(&format!("PRAGMA cache_size = -{CACHE_KIB}"))?;
        self.begin()?;
        let done = match self.is_indexed() {
            Ok(false) => self.complete(),
            other => other.map(drop),
        };
        if let Err(e) = done {
            self.rollback();
            return Err(e);
        }
        self.commit()?;
        self.keeps_extent = true;
        Ok(())
    }

    /// Whether the layer has a spatial index.
    fn is_indexed(&self) -> Result<bool, Error> {
        self.db.execute_batch(EXTENSIONS)?;
        Ok(self.db.query_row(
            "SELECT EXISTS (SELECT 1 FROM gpkg_extensions WHERE table_name = ?1 AND extension_name = 'gpkg_rtree_index')",
            [&self.names.table],
            |row| row.get(0),
        )?)
    }

    /// Extends the extent by the bounds of rows, in the open transaction.
    pub(super) fn grow_extent(&self, bounds: Bounds) -> Result<(), Error> {
        let mut update = self.db.prepare_cached(
            "UPDATE gpkg_contents SET
               min_x = min(coalesce(min_x, ?2), ?2), min_y = min(coalesce(min_y, ?3), ?3),
               max_x = max(coalesce(max_x, ?4), ?4), max_y = max(coalesce(max_y, ?5), ?5),
               last_change = strftime('%Y-%m-%dT%H:%M:%fZ','now') WHERE table_name = ?1",
        )?;
        let Bounds { min_x, min_y, max_x, max_y } = bounds;
        update.execute((&self.names.table, min_x, min_y, max_x, max_y))?;
        Ok(())
    }

    /// Completes the layer: its extent, and its spatial index if it has none. May be repeated.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.begin()?;
        let done = self.complete();
        match done {
            Ok(()) => self.commit(),
            Err(e) => {
                self.rollback();
                Err(e)
            }
        }
    }

    fn complete(&self) -> Result<(), Error> {
        let bounds = if self.is_indexed()? { self.total_of_index()? } else { self.index()? };
        self.db.execute(
            "UPDATE gpkg_contents SET min_x = ?2, min_y = ?3, max_x = ?4, max_y = ?5,
             last_change = strftime('%Y-%m-%dT%H:%M:%fZ','now') WHERE table_name = ?1",
            (
                &self.names.table,
                bounds.map(|b| b.min_x),
                bounds.map(|b| b.min_y),
                bounds.map(|b| b.max_x),
                bounds.map(|b| b.max_y),
            ),
        )?;
        Ok(())
    }

    fn total_of_index(&self) -> Result<Option<Bounds>, Error> {
        let sql =
            format!("SELECT min(minx), min(miny), max(maxx), max(maxy) FROM {}", quote(&self.names.rtree())?);
        Ok(self.db.query_row(&sql, [], |row| {
            let corner = |at| row.get::<_, Option<f64>>(at);
            Ok(match (corner(0)?, corner(1)?, corner(2)?, corner(3)?) {
                (Some(min_x), Some(min_y), Some(max_x), Some(max_y)) => {
                    Some(Bounds { min_x, min_y, max_x, max_y })
                }
                _ => None,
            })
        })?)
    }

    /// Packs the index from the rows of the table.
    fn index(&self) -> Result<Option<Bounds>, Error> {
        let name = self.names.rtree();
        self.db.execute_batch(&format!(
            "CREATE VIRTUAL TABLE {} USING rtree(id, minx, maxx, miny, maxy)",
            quote(&name)?
        ))?;
        let mut boxes = Collector::new();
        {
            let (key, geometry) = (quote(&self.names.key)?, quote(&self.names.geometry)?);
            let sql = format!(
                "SELECT {key}, {geometry} FROM {} WHERE {geometry} NOT NULL ORDER BY {key}",
                quote(&self.names.table)?
            );
            let mut statement = self.db.prepare(&sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let blob = row.get_ref(1)?.as_blob().unwrap_or_default();
                if let Some(bounds) = bounds_of(blob) {
                    boxes.push(row.get(0)?, bounds, &self.path)?;
                }
            }
        }
        let total = boxes.total();
        rtree::pack(boxes, &self.db, &name, &self.path)?;
        self.db.execute_batch(&self.names.triggers()?)?;
        self.db.execute(
            "INSERT INTO gpkg_extensions VALUES (?1, ?2, 'gpkg_rtree_index',
             'http://www.geopackage.org/spec120/#extension_rtree', 'write-only')",
            (&self.names.table, &self.names.geometry),
        )?;
        Ok(total)
    }
}

/// The bounds of a GeoPackage geometry: its envelope, or those of its positions.
fn bounds_of(blob: &[u8]) -> Option<Bounds> {
    if let [b'G', b'P', _, flags, _, _, _, _, rest @ ..] = blob
        && flags & 0b1111 == 0b0011
    {
        let mut corners = rest.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap_or_default()));
        let (min_x, max_x) = (corners.next()?, corners.next()?);
        let (min_y, max_y) = (corners.next()?, corners.next()?);
        return Some(Bounds { min_x, min_y, max_x, max_y });
    }
    Bounds::of_wkb(body(blob).ok()?)
}
