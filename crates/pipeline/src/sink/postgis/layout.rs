//! Compares an existing table with the records: every difference at once, each with the statement
//! that removes it.
//!
//! Reading the catalogue and comparing are separate, so that `plan` and `doctor` say the same as a
//! run does, and so that the comparison can be tested without a database.

use tidegate_geo::wkb::Shape;
use tidegate_geo::{Kind, Schema};
use tidegate_ledger::bounded::BoundedClient;

use super::{judge, quote};
use crate::manifest::{SinkTable, WriteMode};
use crate::sink::{HeldShape, ManagedColumns, SinkError, Spec};

/// A table as the catalogue describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableLayout {
    columns: Vec<TableColumn>,
    /// The unique indexes: the sorted names of their columns, and the condition of a partial one.
    unique: Vec<(Vec<String>, Option<String>)>,
    /// The SRID of the geometry column; 0 if it has none.
    srid: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TableColumn {
    name: String,
    /// The internal name of its type, such as `int8`.
    udt: String,
    /// The name of its type as PostgreSQL prints it, such as `bigint`.
    type_name: String,
    /// Whether a row without a value for it is refused.
    required: bool,
}

/// What the records need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableNeeds<'a> {
    pub(crate) table: &'a SinkTable,
    pub(crate) schema: &'a Schema,
    pub(crate) key: &'a [String],
    pub(crate) mode: WriteMode,
    pub(crate) managed: ManagedColumns,
    pub(crate) srid: u32,
}

/// A difference between a table and the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) message: String,
    /// The statement or the change to the manifest that removes it.
    pub(crate) fix: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.message, self.fix)
    }
}

impl<'a> TableNeeds<'a> {
    pub(crate) fn of(spec: &'a Spec, table: &'a SinkTable) -> Result<TableNeeds<'a>, SinkError> {
        let srid =
            spec.crs.epsg_code().ok_or_else(|| format!("{} has no EPSG code for PostGIS", spec.crs))?;
        let (mode, managed) = (spec.mode, spec.managed);
        Ok(TableNeeds { table, schema: &spec.schema, key: &spec.key, mode, managed, srid })
    }

    /// The columns of the key, quoted and separated by commas.
    pub(super) fn key_columns(&self) -> Result<String, String> {
        Ok(self.key.iter().map(|name| quote(name)).collect::<Result<Vec<_>, _>>()?.join(", "))
    }

    /// The unique index on the key. With a history it covers only the current versions.
    pub(super) fn key_index(&self, name: &str) -> Result<String, String> {
        let current = if self.managed == ManagedColumns::Validity { " WHERE valid_to IS NULL" } else { "" };
        Ok(format!("CREATE UNIQUE INDEX ON {name} ({}){current};", self.key_columns()?))
    }
}

impl TableLayout {
    /// Reads the layout of a table; `None` if it does not exist.
    pub(crate) fn read(
        client: &mut BoundedClient,
        table: &SinkTable,
    ) -> Result<Option<TableLayout>, SinkError> {
        let say = |e: postgres::Error| judge(&e);
        let columns: Vec<TableColumn> = client
            .query(
                "SELECT a.attname::text, t.typname::text, format_type(a.atttypid, a.atttypmod),
                        a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
                 FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                 JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_type t ON t.oid = a.atttypid
                 WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped
                   AND c.relkind IN ('r', 'p', 'v', 'f')
                 ORDER BY a.attnum",
                &[&table.schema, &table.table],
            )
            .map_err(say)?
            .iter()
            .map(|row| TableColumn {
                name: row.get(0),
                udt: row.get(1),
                type_name: row.get(2),
                required: row.get(3),
            })
            .collect();
        if columns.is_empty() {
            return Ok(None);
        }
        let name = format!("{}.{}", quote(&table.schema)?, quote(&table.table)?);
        let unique = client
            .query(
                "SELECT array_agg(a.attname::text ORDER BY a.attname::text), pg_get_expr(i.indpred, i.indrelid)
                 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
                 WHERE i.indrelid = $1::text::regclass AND i.indisunique AND i.indexprs IS NULL
                 GROUP BY i.indexrelid, i.indpred, i.indrelid",
                &[&name],
            )
            .map_err(say)?
            .iter()
            .map(|row| (row.get(0), row.get(1)))
            .collect();
        let geometry = columns.iter().any(|c| c.name == table.geometry_column && c.udt == "geometry");
        let srid = if geometry {
            let sql = "SELECT srid FROM geometry_columns WHERE f_table_schema = $1 AND f_table_name = $2 AND f_geometry_column = $3";
            let row = client.query_opt(sql, &[&table.schema, &table.table, &table.geometry_column]);
            row.map_err(say)?.map_or(0, |row| row.get(0))
        } else {
            0
        };
        Ok(Some(TableLayout { columns, unique, srid }))
    }

    /// Whether geometries are stored as WKB in a `bytea`.
    pub(super) fn holds_wkb(&self, geometry_column: &str) -> bool {
        self.columns.iter().any(|c| c.name == geometry_column && c.udt == "bytea")
    }

    /// The geometry types that the column holds, and the statement that lets it hold any.
    pub(super) fn held_shape(&self, table: &SinkTable) -> Result<HeldShape, String> {
        let column = self.column(&table.geometry_column).filter(|column| column.udt == "geometry");
        let Some(inner) = column.and_then(|column| column.type_name.strip_prefix("geometry(")) else {
            return Ok(HeldShape::default());
        };
        let name = inner.split([',', ')']).next().unwrap_or_default().trim_end_matches(['Z', 'M']);
        let only = Shape::ALL.into_iter().find(|shape| shape.name().eq_ignore_ascii_case(name));
        let advice = format!(
            "ALTER TABLE {}.{} ALTER COLUMN {} TYPE geometry(Geometry, {});",
            quote(&table.schema)?,
            quote(&table.table)?,
            quote(&table.geometry_column)?,
            self.srid
        );
        Ok(HeldShape { only, advice: Some(advice) })
    }

    /// All differences between the table and the records that prevent writing them.
    pub(crate) fn differences(&self, wanted: &TableNeeds<'_>) -> Result<Vec<Difference>, String> {
        let SinkTable { schema, table, geometry_column, .. } = wanted.table;
        let (name, alter) = (format!("{schema}.{table}"), {
            let quoted = format!("{}.{}", quote(schema)?, quote(table)?);
            format!("ALTER TABLE {quoted}")
        });
        let mut found = Vec::new();
        let mut add = |message: String, fix: String| found.push(Difference { message, fix });
        for field in wanted.schema.fields() {
            let (column, kind) = (quote(&field.name)?, sql_type(field.kind));
            match self.column(&field.name) {
                Some(there) if fits(field.kind, &there.udt) => {}
                Some(there) => add(
                    format!(
                        "column `{}` of {name} has type {}, but the field is {kind}",
                        field.name, there.type_name
                    ),
                    format!(
                        "convert the field with a step `coerce`, or {alter} ALTER COLUMN {column} TYPE {kind} USING {column}::{kind};"
                    ),
                ),
                None => match self.case_differs(&field.name) {
                    Some(other) => add(
                        format!("table {name} has a column `{other}`, but the field is `{}`", field.name),
                        format!("rename the field with a step `rename: {{ {}: {other} }}`", field.name),
                    ),
                    None => add(
                        format!("table {name} has no column `{}`", field.name),
                        format!("drop the field with a step, or {alter} ADD COLUMN {column} {kind};"),
                    ),
                },
            }
        }
        match self.column(geometry_column).map(|column| (column.udt.as_str(), &column.type_name)) {
            Some(("geometry", _)) if self.srid != 0 && i64::from(self.srid) != i64::from(wanted.srid) => add(
                format!("table {name} is in EPSG:{}, but the records are in EPSG:{}", self.srid, wanted.srid),
                format!("add a step `reproject: EPSG:{}`", self.srid),
            ),
            Some(("geometry" | "bytea", _)) => {}
            Some((_, type_name)) => add(
                format!(
                    "column `{geometry_column}` of {name} has type {type_name}, which cannot hold geometries"
                ),
                "set `geometry_column` to another name".to_owned(),
            ),
            None => {
                let column = quote(geometry_column)?;
                add(
                    format!("table {name} has no column `{geometry_column}`"),
                    format!(
                        "set `geometry_column`, or {alter} ADD COLUMN {column} geometry(Geometry, {});",
                        wanted.srid
                    ),
                );
            }
        }
        for managed in wanted.managed.names() {
            let kind = if *managed == "valid_from" {
                "timestamptz NOT NULL DEFAULT '-infinity'"
            } else {
                "timestamptz"
            };
            match self.column(managed) {
                Some(there) if fits(Kind::DateTime, &there.udt) => {}
                Some(there) => add(
                    format!(
                        "column `{managed}` of {name} has type {}, but must be timestamptz",
                        there.type_name
                    ),
                    "rename that column".to_owned(),
                ),
                None => add(
                    format!("table {name} has no column `{managed}`"),
                    format!("{alter} ADD COLUMN {managed} {kind};"),
                ),
            }
        }
        for column in self.columns.iter().filter(|column| column.required) {
            let known = wanted.schema.position(&column.name).is_some()
                || column.name == *geometry_column
                || wanted.managed.names().contains(&column.name.as_str());
            if !known {
                add(
                    format!(
                        "column `{}` of {name} is NOT NULL without a default, but the records have no such field",
                        column.name
                    ),
                    format!(
                        "add the field with a step, or {alter} ALTER COLUMN {} DROP NOT NULL;",
                        quote(&column.name)?
                    ),
                );
            }
        }
        if wanted.mode.is_keyed() && !self.has_key(wanted) {
            let quoted = format!("{}.{}", quote(schema)?, quote(table)?);
            add(format!("table {name} has no unique index on the key"), wanted.key_index(&quoted)?);
            if wanted.managed == ManagedColumns::Validity && self.has_plain_key(wanted.key) {
                add(
                    format!("a unique index of {name} allows only one version of each record"),
                    "drop the unique index on the key".to_owned(),
                );
            }
        }
        Ok(found)
    }

    fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    fn case_differs(&self, name: &str) -> Option<&str> {
        let column = self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name));
        column.map(|column| column.name.as_str())
    }

    fn has_plain_key(&self, key: &[String]) -> bool {
        let mut key = key.to_vec();
        key.sort();
        self.unique.iter().any(|(columns, when)| *columns == key && when.is_none())
    }

    fn has_key(&self, wanted: &TableNeeds<'_>) -> bool {
        if wanted.managed != ManagedColumns::Validity {
            return self.has_plain_key(wanted.key);
        }
        let mut key = wanted.key.to_vec();
        key.sort();
        let current = |when: &Option<String>| when.as_deref() == Some("(valid_to IS NULL)");
        self.unique.iter().any(|(columns, when)| *columns == key && current(when))
    }
}

/// The type of a column that is created for a field.
pub(super) fn sql_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "boolean",
        Kind::Int => "bigint",
        Kind::Real => "double precision",
        Kind::Text => "text",
        Kind::Date => "date",
        Kind::DateTime => "timestamptz",
        Kind::Bytes => "bytea",
        Kind::Json => "jsonb",
    }
}

/// Whether a column of this type can hold values of this kind without loss.
fn fits(kind: Kind, udt: &str) -> bool {
    match kind {
        Kind::Bool => udt == "bool",
        Kind::Int => matches!(udt, "int8" | "int4" | "int2" | "numeric"),
        Kind::Real => matches!(udt, "float8" | "numeric"),
        Kind::Text => matches!(udt, "text" | "varchar" | "bpchar" | "citext" | "uuid"),
        Kind::Date => udt == "date",
        Kind::DateTime => matches!(udt, "timestamptz" | "timestamp"),
        Kind::Bytes => udt == "bytea",
        Kind::Json => matches!(udt, "jsonb" | "text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, udt: &str, type_name: &str) -> TableColumn {
        TableColumn { name: name.into(), udt: udt.into(), type_name: type_name.into(), required: false }
    }

    fn found(layout: &TableLayout, managed: ManagedColumns) -> Vec<String> {
        let schema = Schema::new([("OBJECTID", Kind::Int), ("n", Kind::Text), ("x", Kind::Real)]);
        let table: SinkTable = serde_json::from_str(r#"{"url":"env:DB","table":"t"}"#).unwrap();
        let key = ["OBJECTID".to_owned()];
        let wanted = TableNeeds {
            table: &table,
            schema: &schema,
            key: &key,
            mode: WriteMode::Sync,
            managed,
            srid: 4326,
        };
        layout.differences(&wanted).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_difference_is_named_with_its_statement() {
        let mut required = column("owner", "text", "text");
        required.required = true;
        let layout = TableLayout {
            columns: vec![column("objectid", "int8", "bigint"), column("n", "int4", "integer"), required],
            unique: Vec::new(),
            srid: 0,
        };
        assert_eq!(
            found(&layout, ManagedColumns::DeletedAt),
            [
                "table public.t has a column `objectid`, but the field is `OBJECTID`; rename the field with a step `rename: { OBJECTID: objectid }`",
                "column `n` of public.t has type integer, but the field is text; convert the field with a step `coerce`, or ALTER TABLE \"public\".\"t\" ALTER COLUMN \"n\" TYPE text USING \"n\"::text;",
                "table public.t has no column `x`; drop the field with a step, or ALTER TABLE \"public\".\"t\" ADD COLUMN \"x\" double precision;",
                "table public.t has no column `geom`; set `geometry_column`, or ALTER TABLE \"public\".\"t\" ADD COLUMN \"geom\" geometry(Geometry, 4326);",
                "table public.t has no column `deleted_at`; ALTER TABLE \"public\".\"t\" ADD COLUMN deleted_at timestamptz;",
                "column `owner` of public.t is NOT NULL without a default, but the records have no such field; add the field with a step, or ALTER TABLE \"public\".\"t\" ALTER COLUMN \"owner\" DROP NOT NULL;",
                "table public.t has no unique index on the key; CREATE UNIQUE INDEX ON \"public\".\"t\" (\"OBJECTID\");",
            ]
        );
    }

    #[test]
    fn a_table_that_fits_has_none() {
        let mut layout = TableLayout {
            columns: vec![
                column("OBJECTID", "int8", "bigint"),
                column("n", "varchar", "character varying(9)"),
                column("x", "numeric", "numeric"),
                column("geom", "geometry", "geometry(Point,4326)"),
                column("valid_from", "timestamptz", "timestamp with time zone"),
                column("valid_to", "timestamptz", "timestamp with time zone"),
            ],
            unique: vec![(vec!["OBJECTID".into()], None)],
            srid: 4326,
        };
        assert!(found(&layout, ManagedColumns::None).is_empty());
        assert_eq!(found(&layout, ManagedColumns::Validity).len(), 2, "one version only");
        layout.unique = vec![(vec!["OBJECTID".into()], Some("(valid_to IS NULL)".into()))];
        assert!(found(&layout, ManagedColumns::Validity).is_empty());
    }

    #[test]
    fn the_type_of_the_geometry_column_is_told() {
        let table: SinkTable = serde_json::from_str(r#"{"url":"env:DB","table":"t"}"#).unwrap();
        let held = |udt: &str, type_name: &str| {
            let columns = vec![column("geom", udt, type_name)];
            TableLayout { columns, unique: Vec::new(), srid: 4326 }.held_shape(&table).unwrap()
        };
        for (type_name, only) in [
            ("geometry(Polygon,4326)", Some(Shape::Polygon)),
            ("geometry(MultiPolygonZ,4326)", Some(Shape::MultiPolygon)),
            ("geometry(Geometry,4326)", None),
            ("geometry", None),
        ] {
            assert_eq!(held("geometry", type_name).only, only, "{type_name}");
        }
        let advice = "ALTER TABLE \"public\".\"t\" ALTER COLUMN \"geom\" TYPE geometry(Geometry, 4326);";
        assert_eq!(held("geometry", "geometry(Polygon,4326)").advice.as_deref(), Some(advice));
        assert_eq!(held("bytea", "bytea"), HeldShape::default());
    }
}
