//! The SQL of the tables, indexes and triggers of a GeoPackage.

use std::fmt::Write;

use crate::error::Problem;
use crate::schema::{Kind, Schema, free_name};

use super::quote;

/// `application_id` in the header of the file: `GPKG`.
pub(super) const APPLICATION_ID: i32 = 0x4750_4B47;
/// `user_version` in the header of the file: 1.3, which more readers know than 1.4.
pub(super) const USER_VERSION: i32 = 10_300;

/// The mandatory tables, with the three mandatory rows of `gpkg_spatial_ref_sys`.
pub(super) const TABLES: &str = "
CREATE TABLE gpkg_spatial_ref_sys (
  srs_name TEXT NOT NULL, srs_id INTEGER NOT NULL PRIMARY KEY, organization TEXT NOT NULL,
  organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL, description TEXT);
CREATE TABLE gpkg_contents (
  table_name TEXT NOT NULL PRIMARY KEY, data_type TEXT NOT NULL, identifier TEXT UNIQUE,
  description TEXT DEFAULT '',
  last_change DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')),
  min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER,
  CONSTRAINT fk_gc_r_srs_id FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys(srs_id));
CREATE TABLE gpkg_geometry_columns (
  table_name TEXT NOT NULL, column_name TEXT NOT NULL, geometry_type_name TEXT NOT NULL,
  srs_id INTEGER NOT NULL, z TINYINT NOT NULL, m TINYINT NOT NULL,
  CONSTRAINT pk_geom_cols PRIMARY KEY (table_name, column_name),
  CONSTRAINT uk_gc_table_name UNIQUE (table_name),
  CONSTRAINT fk_gc_tn FOREIGN KEY (table_name) REFERENCES gpkg_contents(table_name),
  CONSTRAINT fk_gc_srs FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys(srs_id));
INSERT INTO gpkg_spatial_ref_sys VALUES
  ('Undefined Cartesian SRS', -1, 'NONE', -1, 'undefined', 'undefined Cartesian coordinate reference system'),
  ('Undefined geographic SRS', 0, 'NONE', 0, 'undefined', 'undefined geographic coordinate reference system'),
  ('WGS 84 geodetic', 4326, 'EPSG', 4326, 'GEOGCS[\"WGS 84\",DATUM[\"WGS_1984\",SPHEROID[\"WGS 84\",6378137,298.257223563,AUTHORITY[\"EPSG\",\"7030\"]],AUTHORITY[\"EPSG\",\"6326\"]],PRIMEM[\"Greenwich\",0,AUTHORITY[\"EPSG\",\"8901\"]],UNIT[\"degree\",0.0174532925199433,AUTHORITY[\"EPSG\",\"9122\"]],AXIS[\"Latitude\",NORTH],AXIS[\"Longitude\",EAST],AUTHORITY[\"EPSG\",\"4326\"]]', 'longitude/latitude coordinates in decimal degrees on the WGS 84 spheroid');
";

/// `gpkg_extensions`, which a GeoPackage without extensions may lack.
pub(super) const EXTENSIONS: &str = "
CREATE TABLE IF NOT EXISTS gpkg_extensions (
  table_name TEXT, column_name TEXT, extension_name TEXT NOT NULL, definition TEXT NOT NULL,
  scope TEXT NOT NULL, CONSTRAINT ge_tce UNIQUE (table_name, column_name, extension_name));
";

/// Registers GDAL's extension `gdal_aspatial`. Without it, GDAL lists tables that are not in
/// `gpkg_contents` as layers, such as the checkpoint of a run.
pub(super) const HIDE_OTHERS: &str = "
INSERT INTO gpkg_extensions
  SELECT NULL, NULL, 'gdal_aspatial', 'http://gdal.org/geopackage_aspatial.html', 'read-write'
  WHERE NOT EXISTS (SELECT 1 FROM gpkg_extensions WHERE extension_name = 'gdal_aspatial');
";

/// The names of a layer's table and columns. SQLite's names are case-insensitive, so a field that differs
/// from an earlier one only in case gets a suffix.
pub(super) struct Names {
    pub(super) table: String,
    pub(super) key: String,
    pub(super) geometry: String,
    pub(super) fields: Vec<String>,
}

impl Names {
    pub(super) fn new(table: &str, schema: &Schema) -> Names {
        let mut fields: Vec<String> = Vec::new();
        for field in schema.fields() {
            fields.push(free_name(&field.name, |name| is_taken(&fields, name)));
        }
        let key = free_name("fid", |name| is_taken(&fields, name));
        let geometry = free_name("geom", |name| is_taken(&fields, name));
        Names { table: table.into(), key, geometry, fields }
    }

    pub(super) fn rtree(&self) -> String {
        format!("rtree_{}_{}", self.table, self.geometry)
    }

    pub(super) fn create_table(&self, schema: &Schema) -> Result<String, Problem> {
        let geometry_type = schema.shape.map_or("GEOMETRY", |shape| shape.upper_name());
        let (table, key, geometry) = (quote(&self.table)?, quote(&self.key)?, quote(&self.geometry)?);
        let mut sql =
            format!("CREATE TABLE {table} ({key} INTEGER PRIMARY KEY NOT NULL, {geometry} {geometry_type}");
        for (name, field) in self.fields.iter().zip(schema.fields()) {
            let _ = write!(sql, ", {} {}", quote(name)?, sql_type(field.kind));
        }
        sql.push(')');
        Ok(sql)
    }

    pub(super) fn insert(&self) -> Result<String, Problem> {
        let marks = ",?".repeat(self.fields.len() + 1);
        Ok(format!("INSERT INTO {} VALUES (?{marks})", quote(&self.table)?))
    }

    /// Inserts a row, or updates the row with the same key.
    pub(super) fn insert_row(&self, key: Option<&str>) -> Result<String, Problem> {
        let columns: Vec<String> = [&self.key, &self.geometry]
            .into_iter()
            .chain(&self.fields)
            .map(|name| quote(name))
            .collect::<Result<_, _>>()?;
        let marks = ",?".repeat(columns.len() - 1);
        let mut sql =
            format!("INSERT INTO {} ({}) VALUES (?{marks})", quote(&self.table)?, columns.join(", "));
        if let Some(key) = key {
            let set: Vec<String> =
                columns.iter().skip(1).map(|name| format!("{name} = excluded.{name}")).collect();
            let _ = write!(sql, " ON CONFLICT ({}) DO UPDATE SET {}", quote(key)?, set.join(", "));
        }
        Ok(sql)
    }

    /// The triggers of the extension `gpkg_rtree_index` as of version 1.4, which maintain the index when rows
    /// change. Those of 1.3 fail for an upsert (`ON CONFLICT DO UPDATE`).
    pub(super) fn triggers(&self) -> Result<String, Problem> {
        let (t, i, c) = (quote(&self.table)?, quote(&self.key)?, quote(&self.geometry)?);
        let rtree = self.rtree();
        let r = quote(&rtree)?;
        let name = |suffix: &str| quote(&format!("{rtree}_{suffix}"));
        let has = |row: &str| format!("({row}.{c} NOTNULL AND NOT ST_IsEmpty({row}.{c}))");
        let lacks = |row: &str| format!("({row}.{c} ISNULL OR ST_IsEmpty({row}.{c}))");
        let bounds = format!("ST_MinX(NEW.{c}), ST_MaxX(NEW.{c}), ST_MinY(NEW.{c}), ST_MaxY(NEW.{c})");
        let insert = format!("INSERT OR REPLACE INTO {r} VALUES (NEW.{i}, {bounds});");
        let delete = format!("DELETE FROM {r} WHERE id = OLD.{i};");
        let (has_new, has_old, lacks_new, lacks_old) = (has("NEW"), has("OLD"), lacks("NEW"), lacks("OLD"));
        let same = format!("OLD.{i} = NEW.{i}");
        let moved = format!("OLD.{i} != NEW.{i}");
        let of = format!("AFTER UPDATE OF {c} ON {t} WHEN {same} AND");
        let any = format!("AFTER UPDATE ON {t} WHEN {moved} AND");
        Ok([
            format!("CREATE TRIGGER {} AFTER INSERT ON {t} WHEN {has_new} BEGIN {insert} END;", name("insert")?),
            format!(
                "CREATE TRIGGER {} {of} {has_new} AND {has_old} BEGIN UPDATE {r} SET minx = ST_MinX(NEW.{c}), \
                 maxx = ST_MaxX(NEW.{c}), miny = ST_MinY(NEW.{c}), maxy = ST_MaxY(NEW.{c}) WHERE id = NEW.{i}; END;",
                name("update6")?
            ),
            format!(
                "CREATE TRIGGER {} {of} {has_new} AND {lacks_old} BEGIN INSERT INTO {r} VALUES (NEW.{i}, {bounds}); END;",
                name("update7")?
            ),
            format!("CREATE TRIGGER {} {of} {lacks_new} BEGIN {delete} END;", name("update2")?),
            format!("CREATE TRIGGER {} {any} {has_new} BEGIN {delete} {insert} END;", name("update5")?),
            format!(
                "CREATE TRIGGER {} {any} {lacks_new} BEGIN DELETE FROM {r} WHERE id IN (OLD.{i}, NEW.{i}); END;",
                name("update4")?
            ),
            format!(
                "CREATE TRIGGER {} AFTER DELETE ON {t} WHEN OLD.{c} NOT NULL BEGIN {delete} END;",
                name("delete")?
            ),
        ]
        .join("\n"))
    }
}

fn is_taken(fields: &[String], name: &str) -> bool {
    fields.iter().any(|field| field.eq_ignore_ascii_case(name))
}

fn sql_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "BOOLEAN",
        Kind::Int => "INTEGER",
        Kind::Real => "REAL",
        Kind::Text | Kind::Json => "TEXT",
        Kind::Date => "DATE",
        Kind::DateTime => "DATETIME",
        Kind::Bytes => "BLOB",
    }
}
