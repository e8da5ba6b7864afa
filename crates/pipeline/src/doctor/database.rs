//! Checks the databases of a manifest: the table of a sink, and how each database is reached.

use super::Diagnosis;
use crate::manifest::{self, Manifest};
use crate::sink::SinkError;
use crate::sink::postgis::{config, config_of, could_not_connect, quote};
use tidegate_client::postgres_tls::take_pairs;
use tidegate_client::secret::mask;

/// What the connections to the databases of a manifest use, and why.
pub(super) fn connections(manifest: &Manifest) -> Vec<Diagnosis> {
    let form = &manifest.pipeline;
    let table = |table: &manifest::SinkTable| table.url.clone();
    let places = [
        ("sink", form.sink.as_ref().and_then(|sink| sink.postgis.as_ref()).map(table)),
        ("source", form.source.as_ref().and_then(|source| source.postgis.as_ref()).map(|t| t.url.clone())),
        ("dead letters", form.dead_letters.as_ref().and_then(|letters| letters.store.clone())),
        ("queue", form.source.as_ref().and_then(|source| source.queue.clone())),
    ];
    let mut found = Vec::new();
    for (name, place) in places {
        if let Some(text) = place.and_then(|place| database_url(&place)) {
            found.push(connection(&format!("{name}: connection"), &text));
        }
    }
    found
}

/// The URL of a place, or of what it refers to, if it is one of a database.
fn database_url(place: &str) -> Option<String> {
    let text = match place.parse::<crate::secret::SecretRef>() {
        // What cannot be read is reported where it is used.
        Ok(from) => from.fetch().ok()?.reveal().to_owned(),
        Err(_) => place.to_owned(),
    };
    let is_one = text.starts_with("postgres://") || text.starts_with("postgresql://");
    // These are settings of a store and of a queue.
    is_one.then(|| take_pairs(&text, |name| matches!(name, "schema" | "queue")).0)
}

/// What a connection uses, and why.
fn connection(check: &str, url: &str) -> Diagnosis {
    let connected = config_of(url).map_err(|e| (e, false)).and_then(|config| {
        config.connect().map_err(|e| {
            let why = could_not_connect(&config, &e);
            (why.to_string(), matches!(why, SinkError::Transient { .. }))
        })
    });
    match connected {
        Ok(client) if client.is_exposed() => Diagnosis::warn(
            check,
            client.security(),
            "set sslmode=verify-full, so that the server proves who it is",
        ),
        Ok(client) => Diagnosis::ok(check, client.security()),
        Err((why, is_down)) => {
            let finding =
                Diagnosis::fail(check, why, "check the settings of the database URL: docs/pipeline.md");
            if is_down { finding.theirs() } else { finding }
        }
    }
}

/// Whether the table can be written, or created.
pub(super) fn database(table: &manifest::SinkTable) -> Diagnosis {
    let check = "sink";
    let told = |e: &postgres::Error| {
        e.as_db_error().map_or_else(|| e.to_string(), |db| mask(db.message()).into_owned())
    };
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
