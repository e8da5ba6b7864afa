//! Checks the table of a sink in PostgreSQL.

use super::Diagnosis;
use crate::manifest;
use crate::sink::postgis::{config, quote};

/// Whether the table can be written, or created.
pub(super) fn database(table: &manifest::SinkTable) -> Diagnosis {
    let check = "sink";
    let told =
        |e: &postgres::Error| e.as_db_error().map_or_else(|| e.to_string(), |db| db.message().to_owned());
    let looked = || -> Result<Diagnosis, String> {
        let config = config(&table.url)?;
        let mut client = config.connect().map_err(|e| told(&e))?;
        let schema = client
            .query_one(
                "SELECT current_user::text, to_regnamespace(quote_ident($1)) IS NOT NULL,
                     coalesce(has_schema_privilege(to_regnamespace(quote_ident($1))::oid, 'CREATE'), false),
                     EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'postgis')",
                &[&table.schema],
            )
            .map_err(|e| told(&e))?;
        let (user, there, create, postgis): (String, bool, bool, bool) =
            (schema.get(0), schema.get(1), schema.get(2), schema.get(3));
        let name = format!("{}.{}", quote(&table.schema)?, quote(&table.table)?);
        let rights = client
            .query_one(
                "SELECT to_regclass($1) IS NOT NULL,
                     coalesce(has_table_privilege(to_regclass($1)::oid, 'INSERT') AND has_table_privilege(to_regclass($1)::oid, 'UPDATE'), false)",
                &[&name],
            )
            .map_err(|e| told(&e))?;
        let (known, write): (bool, bool) = (rights.get(0), rights.get(1));
        Ok(if !there {
            Diagnosis::fail(
                check,
                format!("the schema {} does not exist", table.schema),
                format!("CREATE SCHEMA {}", quote(&table.schema)?),
            )
        } else if !create {
            let next = format!(
                "GRANT CREATE, USAGE ON SCHEMA {} TO {}; the checkpoint table is created there",
                quote(&table.schema)?,
                quote(&user)?
            );
            Diagnosis::fail(
                check,
                format!("{user} has no permission to create tables in {}", table.schema),
                next,
            )
        } else if known && !write {
            let next = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO {}", quote(&user)?);
            Diagnosis::fail(
                check,
                format!("{user} has no permission to write to {}.{}", table.schema, table.table),
                next,
            )
        } else if !postgis {
            let next = "run CREATE EXTENSION postgis to store geometries as PostGIS types";
            Diagnosis::warn(
                check,
                "PostGIS is not installed in the database: geometries are stored as WKB",
                next,
            )
        } else {
            let made = if known { "is writable" } else { "can be created" };
            Diagnosis::ok(check, format!("table {}.{} {made} by {user}", table.schema, table.table))
        })
    };
    looked().unwrap_or_else(|e| {
        Diagnosis::fail(
            check,
            format!("the database: {e}"),
            "check that the server is running and that the user and password are correct",
        )
        .theirs()
    })
}
