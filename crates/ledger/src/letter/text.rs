//! Serializes values of the core crate as their text form.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::fmt::Display;
use std::str::FromStr;

pub(super) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

pub(super) fn deserialize<'de, T, D: Deserializer<'de>>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
{
    std::borrow::Cow::<'de, str>::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// The same for an `Option`.
pub(super) mod option {
    use super::{Deserialize, Deserializer, Display, Error, FromStr, Serializer};

    pub(in super::super) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, T, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
    {
        let text = Option::<std::borrow::Cow<'de, str>>::deserialize(from)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}
