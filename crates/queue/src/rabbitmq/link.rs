//! Connections to the server, and the queue's declaration.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use amqprs::channel::{Channel, QueueDeclareArguments};
use amqprs::connection::{Connection, OpenConnectionArguments};
use amqprs::error::Error;
use amqprs::tls::TlsAdaptor;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use url::Url;

use super::confirm::{ChannelWatch, Confirms};
use super::waiting::{SUFFIX, declare_quorum};
use super::wire::SHORT;
use crate::address::{QueueOptions, decoded};
use crate::error::QueueError;

/// How long the server may take for one answer.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// Where the queue is, and how to log in.
pub(super) struct RabbitServer {
    login: OpenConnectionArguments,
    pub(super) queue: String,
    /// Whether a connection was ever opened: after that a refused login may be a restart.
    was_open: AtomicBool,
}

/// A connection with one channel. What was received over it belongs to it.
pub(super) struct RabbitLink {
    connection: Option<Connection>,
    channel: Option<Channel>,
    pub(super) confirms: Confirms,
}

pub(super) fn lost(what: &str) -> QueueError {
    QueueError::Unreachable(format!("RabbitMQ: {what}"))
}

/// Runs something to its end even if the caller stops waiting, because the client library does not
/// survive a request whose caller is gone.
pub(super) async fn whole<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, QueueError> {
    match tokio::time::timeout(limit, tokio::spawn(work)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(lost("the connection broke in the middle of an answer")),
        Err(_) => Err(lost(&format!("no answer within {} s", limit.as_secs()))),
    }
}

impl RabbitServer {
    pub(super) fn new(url: &Url, options: &QueueOptions) -> Result<RabbitServer, QueueError> {
        let refused = |what: String| QueueError::Refused(format!("RabbitMQ: {what}"));
        let host = url.host_str().filter(|host| !host.is_empty()).unwrap_or("localhost");
        let is_tls = url.scheme() == "amqps";
        let (mut vhost, mut ca) = ("/".to_owned(), None);
        for (name, value) in url.query_pairs() {
            match name.as_ref() {
                "vhost" => vhost = value.into_owned(),
                "ca" if is_tls => ca = Some(value.into_owned()),
                other => {
                    return Err(refused(format!(
                        "unknown parameter {other}; expected vhost, and ca with amqps"
                    )));
                }
            }
        }
        let queue = decoded(url.path().rsplit('/').next().unwrap_or_default());
        if queue.is_empty() || queue.len() + SUFFIX + options.worker.len() + 32 > SHORT {
            return Err(refused(
                "the last part of the path must be the name of a queue, of 150 bytes at most".into(),
            ));
        }
        if vhost.len() > SHORT {
            return Err(refused(format!("the virtual host has more than {SHORT} bytes")));
        }
        let (user, password) = match url.username() {
            "" => ("guest".to_owned(), "guest".to_owned()),
            user => (decoded(user), decoded(url.password().unwrap_or_default())),
        };
        let port = url.port().unwrap_or(if is_tls { 5671 } else { 5672 });
        let mut login = OpenConnectionArguments::new(host, port, &user, &password);
        // The connection is the lease: the server ends it after two heartbeats without a sign of life.
        let heartbeat = u16::try_from((options.lease.as_secs() / 2).clamp(2, 30)).unwrap_or(30);
        login
            .virtual_host(&vhost)
            .heartbeat(heartbeat)
            .connection_name(&format!("tidegate {}", options.worker));
        if is_tls {
            let tls = tls(ca.as_deref().map(Path::new)).map_err(|e| refused(format!("TLS: {e}")))?;
            let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            login.tls_adaptor(TlsAdaptor::new(TlsConnector::from(Arc::new(tls)), name));
        }
        Ok(RabbitServer { login, queue, was_open: AtomicBool::new(false) })
    }

    /// Connects, and opens a channel.
    pub(super) async fn connect(&self) -> Result<RabbitLink, QueueError> {
        let login = self.login.clone();
        let opened = whole(ANSWER, async move { Connection::open(&login).await }).await?;
        let connection = opened.map_err(|e| self.login_error(&e))?;
        let (channel, confirms) = open_channel(&connection).await?;
        self.was_open.store(true, Ordering::Relaxed);
        Ok(RabbitLink { connection: Some(connection), channel: Some(channel), confirms })
    }

    /// The server ends the connection when it does not like the password, and says nothing.
    fn login_error(&self, error: &Error) -> QueueError {
        let at = format!("{}:{}", self.login.get_host(), self.login.get_port());
        let text = error.to_string();
        let ends = ["peer shutdown", "interrupted", "reset by peer"];
        let (is_login, is_certificate) =
            (ends.iter().any(|end| text.contains(end)), text.contains("certificate"));
        let is_refused = is_login || is_certificate || matches!(error, Error::ConnectionOpenError(_));
        let what = if is_login {
            "the server ended the connection at the login; check user, password and virtual host"
        } else {
            text.as_str()
        };
        if is_refused && !self.was_open.load(Ordering::Relaxed) {
            QueueError::Refused(format!("RabbitMQ at {at}: {what}"))
        } else {
            QueueError::Unreachable(format!("RabbitMQ at {at}: {what}"))
        }
    }

    /// Declares the queue. Returns what is wrong with a queue that exists and was declared otherwise.
    pub(super) async fn declare(&self, link: &RabbitLink) -> Result<Vec<String>, QueueError> {
        for has_limit in [true, false] {
            match link.declare(declare_quorum(&self.queue, has_limit)).await? {
                Ok(_) if has_limit => return Ok(Vec::new()),
                Ok(_) => {
                    return Ok(vec![format!(
                        "the queue {} has another delivery limit than ours; RabbitMQ drops a message that was delivered more often (by default 20 times in RabbitMQ 4): delete the queue and let tidegate create it, or set the policy delivery-limit to 1000000",
                        self.queue
                    )]);
                }
                Err(why) if why.starts_with("406") => {}
                Err(why) => return Err(refusal(&why)),
            }
        }
        match link.declare(QueueDeclareArguments::new(&self.queue).passive(true).finish()).await? {
            Ok(_) => Ok(vec![format!(
                "the queue {} is not a quorum queue: a classic queue loses messages when its server is lost, and does not count deliveries; use a queue with x-queue-type quorum",
                self.queue
            )]),
            Err(why) => Err(refusal(&why)),
        }
    }
}

/// The answer to a declaration. A server that starts cannot say yet what it has, so only a missing
/// permission and a wrong argument are final.
pub(super) fn refusal(why: &str) -> QueueError {
    if why.starts_with("403") || why.starts_with("406") {
        QueueError::Refused(format!("RabbitMQ: {why}"))
    } else {
        lost(why)
    }
}

async fn open_channel(connection: &Connection) -> Result<(Channel, Confirms), QueueError> {
    let confirms = Confirms::default();
    let (connection, watch) = (connection.clone(), ChannelWatch(confirms.clone()));
    let opened = whole(ANSWER, async move {
        let channel = connection.open_channel(None).await?;
        channel.register_callback(watch).await?;
        Ok::<_, Error>(channel)
    });
    let channel = opened.await?.map_err(|e| lost(&e.to_string()))?;
    Ok((channel, confirms))
}

impl RabbitLink {
    pub(super) fn is_open(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_open)
            && self.channel.as_ref().is_some_and(Channel::is_open)
    }

    pub(super) fn channel(&self) -> Result<&Channel, QueueError> {
        self.channel.as_ref().ok_or_else(|| lost("the connection is closed"))
    }

    /// The error of an operation, with the reason that the server gave.
    pub(super) fn fault(&self, error: &Error) -> QueueError {
        lost(&self.confirms.closed().unwrap_or_else(|| error.to_string()))
    }

    /// Declares a queue over a channel of its own, because a refusal closes the channel. Returns
    /// the number of messages that can be delivered, or the server's refusal.
    pub(super) async fn declare(
        &self,
        arguments: QueueDeclareArguments,
    ) -> Result<Result<u64, String>, QueueError> {
        self.ask(move |channel| async move {
            let answer = channel.queue_declare(arguments).await;
            answer.map(|found| found.map_or(0, |(_, ready, _)| ready.into()))
        })
        .await
    }

    /// Asks something over a channel of its own.
    pub(super) async fn ask<T, F>(
        &self,
        question: impl FnOnce(Channel) -> F,
    ) -> Result<Result<T, String>, QueueError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let connection = self.connection.as_ref().ok_or_else(|| lost("the connection is closed"))?;
        let (channel, confirms) = open_channel(connection).await?;
        let answer = whole(ANSWER, question(channel.clone())).await?;
        match answer {
            Ok(answer) => {
                let _ = whole(ANSWER, channel.close()).await?;
                Ok(Ok(answer))
            }
            Err(e) if !connection.is_open() => Err(lost(&e.to_string())),
            Err(e) => Ok(Err(confirms.closed().unwrap_or_else(|| e.to_string()))),
        }
    }
}

impl Drop for RabbitLink {
    /// The client closes in tasks, which needs a runtime. Without one, the process ends.
    fn drop(&mut self) {
        if tokio::runtime::Handle::try_current().is_err() {
            std::mem::forget((self.channel.take(), self.connection.take()));
        }
    }
}

/// The certificates of the operating system, or those of a file.
fn tls(ca: Option<&Path>) -> Result<ClientConfig, String> {
    let Some(ca) = ca else {
        return tidegate_client::http::platform_tls().map_err(|e| e.to_string());
    };
    let unreadable = |e: &dyn std::fmt::Display| format!("{}: {e}", ca.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(|e| unreadable(&e))? {
        roots.add(certificate.map_err(|e| unreadable(&e))?).map_err(|e| unreadable(&e))?;
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| e.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
