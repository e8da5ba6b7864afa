//! Name resolution.

use futures_util::future::BoxFuture;
use std::io;
use std::net::IpAddr;

/// Resolves host names. The connector checks the addresses it connects to, so DNS rebinding has no
/// effect.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of `host`.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.map(|a| a.ip()).collect()) })
    }
}
