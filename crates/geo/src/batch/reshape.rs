//! A batch in another form: other columns, fewer rows, other geometries.
//!
//! The steps of a pipeline do one of these three things. Each takes the batch apart and moves
//! what stays, so that a rename copies nothing and a filter copies each row once.

use std::sync::Arc;

use super::{Batch, Span};
use crate::column::{Arena, Column};
use crate::error::Problem;
use crate::schema::Schema;

impl Batch {
    /// The same rows with other columns: for each field of the new schema the place of the old
    /// column, or a new column.
    ///
    /// Where a column is missing or of the wrong length, the field is null.
    #[must_use]
    pub fn with_columns(self, schema: Arc<Schema>, columns: Vec<Pick>) -> Batch {
        let rows = self.len();
        let mut old: Vec<Option<Column>> = self.columns.into_iter().map(Some).collect();
        let mut made: Vec<Column> = Vec::with_capacity(schema.fields().len());
        let mut columns = columns.into_iter();
        let uses =
            |at: usize, rest: &[Pick]| rest.iter().any(|pick| matches!(pick, Pick::Old(o) if *o == at));
        for field in schema.fields() {
            let picked = match columns.next() {
                Some(Pick::Old(at)) => {
                    let again = uses(at, columns.as_slice());
                    old.get_mut(at).and_then(|slot| if again { slot.clone() } else { slot.take() })
                }
                Some(Pick::New(column)) => Some(column),
                None => None,
            };
            made.push(
                picked.filter(|column| column.len() == rows && column.kind() == field.kind).unwrap_or_else(
                    || {
                        let mut nulls = Column::new(field.kind);
                        // Null fits every kind.
                        (0..rows).for_each(|_| drop(nulls.push(crate::Value::Null)));
                        nulls
                    },
                ),
            );
        }
        Batch { schema, columns: made, ..self }
    }

    /// The rows for which `keep` is true.
    #[must_use]
    pub fn filter(self, keep: &[bool]) -> Batch {
        if keep.iter().take(self.len()).filter(|keep| **keep).count() == self.len() {
            return self;
        }
        let mut out = Batch::new(self.schema.clone());
        for row in (0..self.len()).filter(|row| keep.get(*row).copied().unwrap_or(false)) {
            out.copy_row(&self, row);
        }
        out.next_record = self.next_record;
        out
    }

    /// Adds a row of a batch of the same schema, as it is.
    pub fn copy_row(&mut self, from: &Batch, row: usize) {
        self.geometry.push(from.geometry.get(row));
        for (to, column) in self.columns.iter_mut().zip(&from.columns) {
            // Of one kind, so that it fits.
            let _ = to.push(column.get(row));
        }
        self.records.push(from.record(row));
        self.next_record = from.record(row).saturating_add(1);
        if let Some(id) = from.id(row) {
            self.set_id(id);
        }
        if !from.foreign(row).is_empty() {
            self.set_foreign(from.foreign(row));
        }
        let (span, raw) = from.origin(row);
        if span != Span::default() || !raw.is_empty() {
            self.set_origin(span, raw);
        }
    }

    /// The same rows with other geometries: `change` is given the row and the old geometry and
    /// appends the new one; what it appends must be canonical, and nothing means none. A row that
    /// it refuses keeps no geometry; the problem is returned with the row.
    #[must_use]
    pub fn map_geometry(
        mut self,
        schema: Arc<Schema>,
        mut change: impl FnMut(usize, Option<&[u8]>, &mut Vec<u8>) -> Result<(), Problem>,
    ) -> (Batch, Vec<(usize, Problem)>) {
        let mut made = Arena::default();
        let mut refused = Vec::new();
        for row in 0..self.len() {
            if let Err(problem) = made.push_with(|out| change(row, self.geometry(row), out)) {
                made.push(&[]);
                refused.push((row, problem.of_record(self.record(row))));
            }
        }
        self.geometry = made;
        self.schema = schema;
        (self, refused)
    }
}

/// Where a column of a reshaped batch comes from.
#[derive(Clone, Debug)]
pub enum Pick {
    /// The old column at this place.
    Old(usize),
    /// A new column.
    New(Column),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;
    use crate::schema::Kind;

    #[test]
    fn columns_move_rows_go_and_geometries_change() {
        let schema = Arc::new(Schema::new([("a", Kind::Int), ("b", Kind::Text)]));
        let mut batch = Batch::new(schema).from_record(5);
        for n in 0..4 {
            batch.push_point(n as f64, 0.0, [Value::Int(n), Value::Text("x")]).unwrap();
        }
        batch.set_id("9");
        let batch = batch.filter(&[true, false, false, true]);
        assert_eq!((batch.len(), batch.record(1), batch.id(0), batch.id(1)), (2, 8, None, Some("9")));
        let wanted =
            Arc::new(Schema::new([("b", Kind::Text), ("c", Kind::Int), ("d", Kind::Int), ("e", Kind::Bool)]));
        let batch = batch.with_columns(wanted.clone(), vec![Pick::Old(1), Pick::Old(0), Pick::Old(0)]);
        let row: Vec<_> = batch.columns().iter().map(|column| column.get(1)).collect();
        assert_eq!(row, [Value::Text("x"), Value::Int(3), Value::Int(3), Value::Null]);
        let (batch, refused) = batch.map_geometry(wanted, |row, old, out| {
            if row == 0 {
                return Err(Problem::new(tidegate_core::Code::INVALID_GEOMETRY, "no"));
            }
            out.extend_from_slice(old.unwrap_or_default());
            Ok(())
        });
        assert_eq!(
            (batch.geometry(0), batch.geometry(1).is_some(), refused[0].1.record),
            (None, true, Some(5))
        );
    }
}
