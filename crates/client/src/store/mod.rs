//! Object stores through lanes.
//!
//! An object store throttles by prefix, answers overload with 503 SlowDown, and occasionally
//! returns an error with status 200. Clients with their own retries handle this poorly: of those
//! measured on one hot prefix, the best sent five calls for every accepted one, and some lost
//! objects. Here the crate `object_store` builds and signs the requests, with its retries disabled,
//! and the decisions are those of any other service: each request is a call in the lane of its
//! prefix, which learns the rate that the prefix accepts; SlowDown only throttles the lane; a retry
//! is safe because a key names one object.
//!
//! ```
//! use tidegate_client::store::{StoreSettings, ObjectStoreClient};
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let store = ObjectStoreClient::open("memory:", &StoreSettings::default()).unwrap();
//! store.put("tiles/1/2.png", "png".into()).await?;
//! assert_eq!(store.get("tiles/1/2.png").await?.bytes(1024).await?, "png");
//! # Ok::<(), tidegate_client::store::StoreError>(()) }).unwrap();
//! ```
//!
//! | file | holds |
//! |---|---|
//! | [`key`] | keys, how they are spread, their lanes |
//! | `settings` | the settings of a store, and why it cannot be opened |
//! | `object` | what is known of an object, and what is asked of it |
//! | `error` | why an operation failed |
//! | `context` | what its calls share with other calls of a run |
//! | `client` | the client itself, with the feature `object-store` |
//! | `absent` | stands in for it without that feature: opening a store fails with the reason |

#[cfg(not(feature = "object-store"))]
#[path = "absent.rs"]
mod client;
#[cfg(feature = "object-store")]
mod client;
mod context;
#[cfg_attr(not(feature = "object-store"), allow(dead_code, reason = "a part of it is for the client"))]
mod error;
#[cfg_attr(not(feature = "object-store"), allow(dead_code, reason = "a part of it is for the client"))]
pub mod key;
mod object;
mod settings;

#[cfg(feature = "object-store")]
pub use client::{CloudFault, CloudRequest, CloudService, ErrorReader, NO_ANSWER};
pub use client::{ObjectReader, ObjectStoreClient, PutReceipt};
pub use context::CallContext;
pub use error::StoreError;
pub use key::{BadKey, KeySpread};
pub use object::{Confirmation, GetRange, Meta};
pub use settings::{CloudSettings, OpenError, StoreSettings};
