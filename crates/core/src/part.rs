//! The parts of the program that a build can leave out, and what is said where one is missing.
//!
//! Each of them costs seconds of compilation that a small build (`make demo`) does not need. A missing
//! part is said in the same words by every crate, and the feature that adds it has the same name in
//! every crate that has it.

use core::fmt;

/// A part of the program that a build can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionalPart {
    /// Files of GeoParquet.
    GeoParquet,
    /// JPEG in rasters.
    Jpeg,
    /// Queues of Kafka.
    Kafka,
    /// LERC in rasters.
    Lerc,
    /// Queues of NATS JetStream, and lanes that machines share at NATS.
    Nats,
    /// Buckets and directories as object stores.
    ObjectStores,
    /// The export of metrics and traces to a collector.
    Otlp,
    /// Tables, queues, dead letters, and lanes that machines share at PostgreSQL.
    PostgreSql,
    /// Queues of Google Pub/Sub.
    PubSub,
    /// Queues of RabbitMQ.
    RabbitMq,
    /// Queues in Redis, and lanes that machines share there.
    Redis,
    /// Queues of AWS SQS.
    Sqs,
    /// WebP in rasters.
    WebP,
}

impl OptionalPart {
    /// All of them, by the name of their feature.
    pub const ALL: [OptionalPart; 13] = [
        OptionalPart::Jpeg,
        OptionalPart::Kafka,
        OptionalPart::Lerc,
        OptionalPart::Nats,
        OptionalPart::ObjectStores,
        OptionalPart::Otlp,
        OptionalPart::GeoParquet,
        OptionalPart::PostgreSql,
        OptionalPart::PubSub,
        OptionalPart::RabbitMq,
        OptionalPart::Redis,
        OptionalPart::Sqs,
        OptionalPart::WebP,
    ];

    /// Its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            OptionalPart::GeoParquet => "GeoParquet",
            OptionalPart::Jpeg => "JPEG",
            OptionalPart::Kafka => "Kafka",
            OptionalPart::Lerc => "LERC",
            OptionalPart::Nats => "NATS",
            OptionalPart::ObjectStores => "object stores",
            OptionalPart::Otlp => "OTLP exporter",
            OptionalPart::PostgreSql => "PostgreSQL",
            OptionalPart::PubSub => "Pub/Sub",
            OptionalPart::RabbitMq => "RabbitMQ",
            OptionalPart::Redis => "Redis",
            OptionalPart::Sqs => "SQS",
            OptionalPart::WebP => "WebP",
        }
    }

    /// The feature of a crate that adds it.
    #[must_use]
    pub const fn feature(self) -> &'static str {
        match self {
            OptionalPart::GeoParquet => "parquet",
            OptionalPart::Jpeg => "jpeg",
            OptionalPart::Kafka => "kafka",
            OptionalPart::Lerc => "lerc",
            OptionalPart::Nats => "nats",
            OptionalPart::ObjectStores => "object-store",
            OptionalPart::Otlp => "otlp",
            OptionalPart::PostgreSql => "postgres",
            OptionalPart::PubSub => "pubsub",
            OptionalPart::RabbitMq => "rabbitmq",
            OptionalPart::Redis => "redis",
            OptionalPart::Sqs => "sqs",
            OptionalPart::WebP => "webp",
        }
    }
}

/// The error of a build without a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingPart(pub OptionalPart);

impl fmt::Display for MissingPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this build of tidegate has no {}; install the full one (`cargo install --path crates/cli --locked`), or add `--features {}`",
            self.0.name(),
            self.0.feature()
        )
    }
}

impl core::error::Error for MissingPart {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_missing_part_says_what_to_do() {
        assert_eq!(
            MissingPart(OptionalPart::PostgreSql).to_string(),
            "this build of tidegate has no PostgreSQL; install the full one (`cargo install --path crates/cli --locked`), or add `--features postgres`"
        );
    }

    #[test]
    fn the_list_is_sorted_by_feature_and_holds_each_once() {
        assert!(OptionalPart::ALL.windows(2).all(|two| two[0].feature() < two[1].feature()));
    }
}
