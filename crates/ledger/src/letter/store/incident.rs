//! Incidents: batches that failed as a whole, and suspend their pipeline.

use super::{AuditEvent, LetterStore, Result, audit, broken};
use crate::letter::LetterError;
use tidegate_core::letter::Fingerprint;

/// A pipeline that was suspended because a batch failed with one fingerprint.
#[derive(Clone, Debug, PartialEq)]
pub struct Incident {
    /// The number of the incident.
    pub incident: i64,
    /// The name of the pipeline.
    pub pipeline: String,
    /// The fingerprint of the failures.
    pub fingerprint: Fingerprint,
    /// The code of the failures.
    pub code: String,
    /// The message of one of the failures.
    pub message: String,
    /// The number of records that failed with the fingerprint.
    pub failed: u64,
    /// The number of records in the batch.
    pub batch: u64,
    /// Time of opening, in milliseconds since 1970.
    pub opened_ms: i64,
    /// Time of closing, in milliseconds since 1970.
    pub closed_ms: Option<i64>,
}

impl LetterStore {
    /// Opens an incident, or adds to the open one with the same fingerprint; returns its number.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn incident_open(&mut self, incident: &Incident) -> Result<i64> {
        let fp = incident.fingerprint.0.cast_signed();
        self.tx(|db, writer| {
            let rows = db.query(
                "UPDATE incident SET failed = failed + ?1, batch = batch + ?2
                 WHERE pipeline = ?3 AND fp = ?4 AND closed_ms IS NULL RETURNING incident",
                &[
                    (incident.failed as i64).into(),
                    (incident.batch as i64).into(),
                    incident.pipeline.as_str().into(),
                    fp.into(),
                ],
            )?;
            if let Some(row) = rows.first() {
                return Ok(row.int(0));
            }
            let rows = db.query(
                "INSERT INTO incident (pipeline, fp, code, message, failed, batch, opened_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) RETURNING incident",
                &[
                    incident.pipeline.as_str().into(),
                    fp.into(),
                    incident.code.as_str().into(),
                    incident.message.as_str().into(),
                    (incident.failed as i64).into(),
                    (incident.batch as i64).into(),
                    incident.opened_ms.into(),
                ],
            )?;
            let number = rows.first().map(|row| row.int(0)).ok_or_else(|| broken("no incident was made"))?;
            let detail = serde_json::json!({
                "incident": number, "pipeline": incident.pipeline, "code": incident.code,
                "failed": incident.failed, "batch": incident.batch,
            });
            let at_ms = incident.opened_ms;
            audit::append(db, writer, [AuditEvent::new(at_ms, "incident", detail).code(&incident.code)])?;
            Ok(number)
        })
    }

    /// The incidents that are open, of one pipeline or of all.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn incidents(&mut self, pipeline: Option<&str>) -> Result<Vec<Incident>> {
        let rows = self.db.query(
            "SELECT incident, pipeline, fp, code, message, failed, batch, opened_ms, closed_ms FROM incident
             WHERE closed_ms IS NULL ORDER BY incident",
            &[],
        )?;
        let all = rows.iter().map(|row| Incident {
            incident: row.int(0),
            pipeline: row.text(1),
            fingerprint: Fingerprint(row.int(2).cast_unsigned()),
            code: row.text(3),
            message: row.text(4),
            failed: row.int(5) as u64,
            batch: row.int(6) as u64,
            opened_ms: row.int(7),
            closed_ms: row.maybe_int(8),
        });
        Ok(all.filter(|i| pipeline.is_none_or(|name| i.pipeline == name)).collect())
    }

    /// Closes an incident, so that its pipeline may run again.
    ///
    /// # Errors
    /// [`LetterError::Refused`] if it is not open.
    pub fn incident_close(&mut self, incident: i64, now_ms: i64) -> Result<()> {
        self.tx(|db, writer| {
            let closed = db.exec(
                "UPDATE incident SET closed_ms = ?1, closed_by = ?2 WHERE incident = ?3 AND closed_ms IS NULL",
                &[now_ms.into(), writer.who.as_str().into(), incident.into()],
            )?;
            if closed == 0 {
                return Err(LetterError::Refused(format!("no open incident {incident}")));
            }
            let detail = serde_json::json!({ "incident": incident, "closed": true });
            audit::append(db, writer, [AuditEvent::new(now_ms, "incident", detail)])
        })
    }
}
