//! coerce: values in other types, without loss or not at all.

use std::sync::Arc;

use tidegate_geo::batch::Pick;
use tidegate_geo::column::Column;
use tidegate_geo::mapping::coerce;
use tidegate_geo::{Batch, Kind, Problem, Schema, Value};

use super::{Aside, Flow, Step, StepError, kind};
use crate::manifest::Coerce;

struct Typed {
    schema: Arc<Schema>,
    /// By column: the kind that it is to have.
    kinds: Vec<Option<Kind>>,
    null: Vec<String>,
    format: Option<String>,
    decimal: char,
    thousands: Option<char>,
}

pub(super) fn build(form: &Coerce, flow: &mut Flow) -> Result<Box<dyn Step>, String> {
    let mut fields = flow.fields();
    let mut kinds = vec![None; fields.len()];
    for (name, cast) in &form.fields {
        let at = flow.field(name)?;
        if let (Some(field), Some(slot)) = (fields.get_mut(at), kinds.get_mut(at)) {
            field.1 = kind(*cast);
            *slot = Some(kind(*cast));
        }
    }
    flow.with(fields);
    let sign = |text: &Option<String>| text.as_ref().and_then(|text| text.chars().next());
    let decimal = sign(&form.decimal).unwrap_or('.');
    let thousands = sign(&form.thousands);
    if thousands == Some(decimal) {
        return Err(format!("`{decimal}` cannot be both the decimal and the thousands separator"));
    }
    Ok(Box::new(Typed {
        schema: flow.schema.clone(),
        kinds,
        null: form.null_values.clone(),
        format: form.format.clone(),
        decimal,
        thousands,
    }))
}

impl Typed {
    /// A number of another place as we write it; `None` if it is not one of that place either.
    fn local(&self, text: &str) -> Option<String> {
        if self.decimal == '.' && self.thousands.is_none() {
            return Some(text.to_owned());
        }
        let text = text.trim();
        let (whole, fraction) = text.split_once(self.decimal).map_or((text, None), |(w, f)| (w, Some(f)));
        let mut plain = String::with_capacity(text.len());
        match self.thousands.filter(|sign| whole.contains(*sign)) {
            // A thousands sign stands before every three digits, or this is no such number.
            Some(sign) => {
                for (at, group) in whole.split(sign).enumerate() {
                    let digits = group.trim_start_matches(['-', '+']);
                    let right = if at == 0 { (1..=3).contains(&digits.len()) } else { group.len() == 3 };
                    if !right || !digits.bytes().all(|b| b.is_ascii_digit()) {
                        return None;
                    }
                    plain.push_str(group);
                }
            }
            None => plain.push_str(whole),
        }
        if plain.contains('.') {
            return None;
        }
        if let Some(fraction) = fraction {
            if fraction.is_empty() || fraction.contains('.') {
                return None;
            }
            plain.push('.');
            plain.push_str(fraction);
        }
        Some(plain)
    }

    fn push(&self, value: Value<'_>, kind: Kind, column: &mut Column) -> Result<(), Problem> {
        let local = match (value, kind) {
            (Value::Text(text), Kind::Int | Kind::Real)
                if !self.null.iter().any(|token| token == text.trim()) =>
            {
                let refuse = || {
                    let shown: String = text.chars().take(60).collect();
                    Problem::new(
                        tidegate_core::Code::SCHEMA_MISMATCH,
                        format!("{shown:?} cannot be converted to {kind} without loss"),
                    )
                };
                Some(self.local(text).ok_or_else(refuse)?)
            }
            _ => None,
        };
        let value = local.as_deref().map_or(value, Value::Text);
        let made = coerce(value, kind, &self.null, self.format.as_deref())?;
        column.push(made.value())
    }
}

impl Step for Typed {
    fn apply(&mut self, batch: Batch, aside: &mut Aside) -> Result<Batch, StepError> {
        let mut picks = Vec::with_capacity(self.kinds.len());
        let mut refused = Vec::new();
        for (at, wanted) in self.kinds.iter().enumerate() {
            let (Some(kind), Some(field)) = (wanted, self.schema.fields().get(at)) else {
                picks.push(Pick::Old(at));
                continue;
            };
            let mut column = Column::new(*kind);
            for row in 0..batch.len() {
                if let Err(problem) = self.push(batch.value(row, at), *kind, &mut column) {
                    refused.push((row, problem.under(&field.name)));
                    // Null fits every kind; the row goes anyway.
                    let _ = column.push(Value::Null);
                }
            }
            picks.push(Pick::New(column));
        }
        // All problems of a record together, as the record was before.
        refused.sort_by_key(|(row, _)| *row);
        let keep = aside.refuse(&batch, refused);
        Ok(batch.with_columns(self.schema.clone(), picks).filter(&keep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_other_places_are_read_exactly() {
        let of = |decimal, thousands, text: &str| {
            let typed = Typed {
                schema: Arc::default(),
                kinds: vec![],
                null: vec![],
                format: None,
                decimal,
                thousands,
            };
            typed.local(text)
        };
        assert_eq!(of(',', Some('.'), "1.234.567,5").as_deref(), Some("1234567.5"));
        assert_eq!(of(',', None, "12,5").as_deref(), Some("12.5"));
        assert_eq!(of('.', Some(','), "-1,234").as_deref(), Some("-1234"));
        assert_eq!(of(',', None, "-7").as_deref(), Some("-7"));
        for (decimal, thousands, text) in [
            (',', Some('.'), "12.5"),
            (',', None, "12.5"),
            ('.', Some(','), "1,23"),
            (',', Some('.'), "1.2345"),
            (',', None, "1,"),
            (',', Some('.'), "1234.567"),
        ] {
            assert_eq!(of(decimal, thousands, text), None, "{text}");
        }
    }
}
