//! Message queues as carriers of geotasks.
//!
//! A queue carries messages; it does not know what became of them. What became of a task (running,
//! done, dead, cancelled) is written in the sink of its pipeline, in the transaction of its rows. So
//! every transport gives the same result, whatever it promises: a message that is delivered twice
//! has one effect.
//!
//! [`Transport`] is the interface. [`open`] finds the transport for a URL. The feature `conformance`
//! holds the suite that every transport passes against a real server.
//!
//! | file | holds |
//! |---|---|
//! | `geotask` | what a message says |
//! | `cloud_event` | CloudEvents as geotasks |
//! | `message` | messages, deliveries, receipts |
//! | `transport` | the interface, and what a transport promises |
//! | `address` | URLs of queues; opens them |
//! | `error` | why a queue cannot be used |
//! | `cloud`, `sqs`, `pubsub` | the queues of AWS and Google, over our own HTTP and lanes |
//! | `embedded` | SQLite on one machine, PostgreSQL on several |
//! | `redis` | Redis Streams |
//! | `nats` | NATS JetStream |
//! | `parameters` | the parts of the URL of a server |
//! | `rabbitmq` | RabbitMQ, quorum queues |
//! | `kafka` | Kafka, consumer groups |
//! | `conformance` | the suite |
//! | `promise_page` | compares promises with `docs/queues.md` |

mod address;
#[cfg(any(feature = "pubsub", feature = "sqs"))]
mod cloud;
mod cloud_event;
#[cfg(feature = "conformance")]
pub mod conformance;
mod embedded;
mod error;
mod geotask;
#[cfg(feature = "kafka")]
mod kafka;
mod message;
#[cfg(feature = "nats")]
mod nats;
#[cfg(any(feature = "nats", feature = "redis"))]
mod parameters;
#[cfg(feature = "conformance")]
mod promise_page;
#[cfg(feature = "pubsub")]
mod pubsub;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqs")]
mod sqs;
mod transport;

pub use address::{QueueAddress, QueueOptions, open};
pub use error::QueueError;
pub use geotask::{
    AFTER_MAX, GEOTASK_SCHEMA, Geotask, NAME_BYTES_MAX, NotATask, OBJECT_BYTES_MAX, PRIORITY_MAX,
};
pub use message::{Delivery, Message, Receipt, now_ms};
pub use transport::{Promises, QueueDepth, Transport};
