//! Columns that nest, as JSON.

use parquet::record::Field;

use super::super::time;
use crate::column::Value;
use crate::format::json;

/// Appends the JSON text of a value; `null` for what is absent.
pub(super) fn write(field: &Field, out: &mut Vec<u8>) {
    let value = |out: &mut Vec<u8>, value: Value<'_>| {
        let Ok(()) = json::write_value::<std::convert::Infallible>(out, value);
    };
    match field {
        Field::Null => value(out, Value::Null),
        Field::Bool(b) => value(out, Value::Bool(*b)),
        Field::Byte(i) => value(out, Value::Int((*i).into())),
        Field::Short(i) => value(out, Value::Int((*i).into())),
        Field::Int(i) => value(out, Value::Int((*i).into())),
        Field::Long(i) => value(out, Value::Int(*i)),
        Field::UByte(i) => value(out, Value::Int((*i).into())),
        Field::UShort(i) => value(out, Value::Int((*i).into())),
        Field::UInt(i) => value(out, Value::Int((*i).into())),
        Field::ULong(i) => out.extend_from_slice(i.to_string().as_bytes()),
        Field::Float16(x) => value(out, Value::Real(f64::from(*x))),
        Field::Float(x) => value(out, Value::Real((*x).into())),
        Field::Double(x) => value(out, Value::Real(*x)),
        Field::Str(text) => value(out, Value::Text(text)),
        Field::Bytes(bytes) => value(out, Value::Bytes(bytes.data())),
        Field::Date(day) => value(out, Value::Text(&time::day_text(*day))),
        Field::TimestampMillis(at) => {
            value(out, Value::Text(&time::moment_text(i128::from(*at) * 1_000_000, true)));
        }
        Field::TimestampMicros(at) => {
            value(out, Value::Text(&time::moment_text(i128::from(*at) * 1_000, true)));
        }
        Field::TimeMillis(_) | Field::TimeMicros(_) | Field::Decimal(_) => {
            value(out, Value::Text(&field.to_string()));
        }
        Field::Group(row) => object(row.get_column_iter().map(|(name, field)| (name.clone(), field)), out),
        Field::ListInternal(list) => {
            out.push(b'[');
            for (at, field) in list.elements().iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(field, out);
            }
            out.push(b']');
        }
        Field::MapInternal(map) => {
            let key = |field: &Field| match field {
                Field::Str(text) => text.clone(),
                other => other.to_string(),
            };
            object(map.entries().iter().map(|(name, field)| (key(name), field)), out);
        }
    }
}

fn object<'a>(members: impl Iterator<Item = (String, &'a Field)>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, (name, field)) in members.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::write_text(out, &name);
        out.push(b':');
        write(field, out);
    }
    out.push(b'}');
}
