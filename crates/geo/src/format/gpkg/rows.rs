//! Single rows of an existing layer: found by key or by number, and changed in their place.

use std::path::Path;

use rusqlite::Connection;
use tidegate_core::Code;

use super::store::{Landed, Store, Writing};
use super::write::{geometry_blob, kind_at, sql_value, wrong_shape};
use super::{functions, quote};
use crate::batch::Batch;
use crate::error::{Error, Problem};
use crate::wkb::{self, Dim, Shape};

/// Lets a layer hold geometries of any type. Its rows stay as they are.
///
/// # Errors
/// If the file is not a GeoPackage, or on an I/O error.
pub fn hold_any_shape(path: &Path, layer: &str) -> Result<(), Error> {
    let db = Connection::open(path)?;
    db.busy_timeout(std::time::Duration::from_secs(30))?;
    functions::add(&db)?;
    db.execute_batch("PRAGMA synchronous = FULL")?;
    db.execute(
        "UPDATE gpkg_geometry_columns SET geometry_type_name = 'GEOMETRY' WHERE table_name = ?1",
        [layer],
    )?;
    db.close().map_err(|(_, e)| e.into())
}

impl Store {
    /// Which of these keys, each as the texts of its values, a current row has.
    ///
    /// # Errors
    /// On an I/O error.
    pub fn has(&self, all: &[Vec<String>]) -> Result<Vec<bool>, Error> {
        let Writing::Upsert(upsert) = &self.writing else { return Ok(vec![false; all.len()]) };
        let (table, columns) = (quote(&self.names.table)?, self.quoted(&upsert.key)?);
        let same = columns.split(", ").zip(1..).map(|(name, at)| format!("t.{name} = ?{at}"));
        let sql = format!(
            "SELECT EXISTS (SELECT 1 FROM {table} t WHERE {} AND {})",
            same.collect::<Vec<_>>().join(" AND "),
            upsert.managed.current("t")
        );
        let mut statement = self.db.prepare_cached(&sql)?;
        let mut found = Vec::with_capacity(all.len());
        for key in all {
            found.push(statement.query_row(rusqlite::params_from_iter(key), |row| row.get(0))?);
        }
        Ok(found)
    }

    /// Replaces the row that has the number of the record, from 0 in the order of their identifiers,
    /// within the transaction.
    ///
    /// # Errors
    /// `Error::Problem` if there is no such row, or the layer cannot hold the record.
    pub fn replace(&mut self, batch: &Batch, row: usize) -> Result<Landed, Error> {
        let (table, id) = (quote(&self.names.table)?, quote(&self.names.key)?);
        let number = batch.record(row);
        let offset = i64::try_from(number).unwrap_or(i64::MAX);
        let find = format!("SELECT {id} FROM {table} ORDER BY {id} LIMIT 1 OFFSET ?1");
        let mut find = self.db.prepare_cached(&find)?;
        let found: Option<i64> = match find.query_map([offset], |row| row.get(0))?.next() {
            Some(found) => Some(found?),
            None => None,
        };
        drop(find);
        let Some(found) = found else {
            let message = format!("the layer has no row {}; run the pipeline again", number + 1);
            return Err(Problem::new(Code::CONFLICT, message).of_record(number).into());
        };
        let mut columns = vec![quote(&self.names.geometry)?];
        for name in &self.names.fields {
            columns.push(quote(name)?);
        }
        let geometry = match batch.geometry(row) {
            Some(wkb) => {
                let (shape, _) = wkb::head(wkb).unwrap_or((Shape::GeometryCollection, Dim::Xy));
                if let Some(only) = self.schema.shape.filter(|only| *only != shape) {
                    return Err(wrong_shape(shape, only).of_record(batch.record(row)).into());
                }
                geometry_blob(wkb, shape, batch.bounds(row), self.srs_id, &mut self.blob);
                true
            }
            None => false,
        };
        let all = || columns.iter().zip(1..);
        let set = all().map(|(name, at)| format!("{name} = ?{at}")).collect::<Vec<_>>().join(", ");
        let differs = all().map(|(name, at)| format!("{name} IS NOT ?{at}")).collect::<Vec<_>>();
        let sql = format!(
            "UPDATE {table} SET {set} WHERE {id} = ?{} AND ({})",
            columns.len() + 1,
            differs.join(" OR ")
        );
        let mut update = self.db.prepare_cached(&sql)?;
        if geometry {
            update.raw_bind_parameter(1, self.blob.as_slice())?;
        } else {
            update.raw_bind_parameter(1, rusqlite::types::Null)?;
        }
        for at in 0..self.schema.fields().len() {
            update.raw_bind_parameter(at + 2, sql_value(batch.value(row, at), kind_at(batch, at)))?;
        }
        update.raw_bind_parameter(columns.len() + 1, found)?;
        let changed = update.raw_execute()?;
        Ok(if changed == 0 { Landed::Unchanged } else { Landed::Updated })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Crs, Kind, Schema, Value};
    use std::sync::Arc;

    fn batch(schema: &Arc<Schema>, rows: &[(&str, i64)]) -> Batch {
        let mut batch = Batch::new(schema.clone());
        for (text, n) in rows {
            let mut wkb = Vec::new();
            crate::wkt::read(text, &mut wkb).unwrap();
            batch.push(Some(&wkb), [Value::Int(*n)]).unwrap();
        }
        batch
    }

    #[test]
    fn one_row_changes_in_its_place_and_its_index() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.gpkg");
        let schema = Arc::new(Schema::new([("n", Kind::Int)]).of_shape(Shape::Point));
        let open = |writing| Store::open(&path, "a", &schema, &Crs::wgs84(), writing).unwrap();
        let first = batch(&schema, &[("POINT (1 1)", 1), ("POINT (2 2)", 2), ("POINT (3 3)", 3)]);
        let mut store = open(Writing::Append);
        store.begin().unwrap();
        for row in 0..3 {
            assert_eq!(store.write(&first, row).unwrap(), Landed::Inserted);
        }
        store.commit().unwrap();
        store.finish().unwrap();
        let new = batch(
            &schema,
            &[("POINT (9 9)", 9), ("POINT (20 20)", 22), ("POINT (9 9)", 9), ("POINT (9 9)", 9)],
        );
        store.begin().unwrap();
        assert_eq!(store.replace(&new, 1).unwrap(), Landed::Updated);
        assert_eq!(store.replace(&new, 1).unwrap(), Landed::Unchanged);
        assert!(matches!(store.replace(&new, 3), Err(Error::Problem(p)) if p.message.contains("no row 4")));
        store.commit().unwrap();
        let rows = "SELECT group_concat(fid || ':' || n) FROM (SELECT * FROM a ORDER BY fid)";
        let found: String = store.db().query_row(rows, [], |row| row.get(0)).unwrap();
        assert_eq!(found, "1:1,2:22,3:3");
        let inside = "SELECT count(*) FROM rtree_a_geom WHERE minx > 10";
        assert_eq!(store.db().query_row(inside, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
        store.close().unwrap();
        let store = open(Writing::upsert(vec!["n".into()]));
        let keys = ["1", "22", "2"].map(|key| vec![key.to_owned()]);
        assert_eq!(store.has(&keys).unwrap(), [true, true, false]);
        store.close().unwrap();
        hold_any_shape(&path, "a").unwrap();
        let layer = crate::format::open(&path, &crate::format::geojson::ReadOptions::default()).unwrap();
        assert_eq!(layer.layer().schema.shape, None);
    }
}
