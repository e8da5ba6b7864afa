//! Names to addresses.

use futures_util::future::BoxFuture;
use std::io;
use std::net::IpAddr;

/// Turns names into addresses. What it answers is filtered by the connector that connects to it,
/// so a name that changes its address between two looks gains nothing.
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
