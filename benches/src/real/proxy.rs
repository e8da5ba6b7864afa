//! nginx and HAProxy as processes: their configuration, their start and their end.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_sim::real_limiter::RealLimiter;

/// How long a proxy may take until it listens.
const START_MAX: Duration = Duration::from_secs(10);

/// A proxy that runs.
pub(crate) struct Proxy {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Proxy {
    /// Starts the limiter before `backend` and waits until it listens.
    pub(crate) fn start(
        limiter: RealLimiter,
        status: u16,
        backend: SocketAddr,
        work: &Path,
    ) -> Result<Proxy, String> {
        let work = fs::canonicalize(work).map_err(|e| format!("{}: {e}", work.display()))?;
        let port = free_port()?;
        let (conf, log) = (work.join("proxy.conf"), work.join("access.log"));
        let nginx = limiter.name().starts_with("nginx");
        let text = if nginx {
            nginx_conf(limiter, status, backend, port, &work)
        } else {
            haproxy_conf(limiter, status, backend, port)
        };
        fs::write(&conf, text).map_err(|e| format!("{}: {e}", conf.display()))?;
        let file = |name: &str| File::create(work.join(name)).map_err(|e| format!("{name}: {e}"));
        let mut command = if nginx {
            let mut command = Command::new("nginx");
            command.arg("-p").arg(&work).arg("-c").arg(&conf).stdout(Stdio::null());
            command
        } else {
            let mut command = Command::new("haproxy");
            // In the foreground its log can go to standard output.
            command.arg("-db").arg("-f").arg(&conf).stdout(file("access.log")?);
            command
        };
        command.stdin(Stdio::null()).stderr(file("proxy.stderr")?);
        let child =
            command.spawn().map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))?;
        let mut proxy = Proxy { child, port, log };
        let until = Instant::now() + START_MAX;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = proxy.child.try_wait().map_err(|e| e.to_string())?.is_some();
            if ended || Instant::now() >= until {
                let said = fs::read_to_string(work.join("proxy.stderr")).unwrap_or_default();
                return Err(format!("{} does not start: {said}", limiter.name()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(proxy)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends it and returns its access log.
    pub(crate) fn stop(mut self) -> Result<String, String> {
        self.end();
        fs::read_to_string(&self.log).map_err(|e| format!("{}: {e}", self.log.display()))
    }

    fn end(&mut self) {
        // The master of nginx ends its worker when it is asked to, not when it is killed.
        let asked = Command::new("kill").arg(self.child.id().to_string()).status();
        let until = Instant::now() + START_MAX;
        while asked.is_ok() && Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    Ok(listener.local_addr().map_err(|e| e.to_string())?.port())
}

/// One limiter for all clients: the key is the name of the server.
fn nginx_conf(limiter: RealLimiter, status: u16, backend: SocketAddr, port: u16, work: &Path) -> String {
    let rule = match limiter {
        RealLimiter::RequestsBurst => "limit_req zone=calls burst=20 nodelay;",
        RealLimiter::RequestsDelay => "limit_req zone=calls burst=20;",
        RealLimiter::RequestsStrict => "limit_req zone=calls;",
        _ => "limit_conn places 8;",
    };
    let dir = work.display();
    format!(
        "daemon off;
worker_processes 1;
user root root;
pid {dir}/nginx.pid;
error_log {dir}/error.log error;
events {{ worker_connections 1024; }}
http {{
  log_format line '$status $arg_q';
  access_log {dir}/access.log line;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  limit_req_zone $server_name zone=calls:1m rate=100r/s;
  limit_conn_zone $server_name zone=places:1m;
  limit_req_status {status};
  limit_conn_status {status};
  keepalive_requests 100000;
  upstream backend {{ server {backend}; keepalive 128; }}
  server {{
    listen 127.0.0.1:{port};
    server_name bench;
    location / {{
      {rule}
      proxy_pass http://backend;
      proxy_http_version 1.1;
      proxy_set_header Connection '';
    }}
  }}
}}
"
    )
}

fn haproxy_conf(limiter: RealLimiter, status: u16, backend: SocketAddr, port: u16) -> String {
    let (period, limit) = if limiter == RealLimiter::StickTableLong { ("10s", 1000) } else { ("1s", 100) };
    let rule = match (limiter, status) {
        // 500 is what it sends by itself.
        (RealLimiter::Tarpit, 500) => "tarpit".to_owned(),
        (RealLimiter::Tarpit, status) => format!("tarpit deny_status {status}"),
        (_, status) => format!("deny deny_status {status}"),
    };
    format!(
        "global
  log stdout format raw local0
  nbthread 1
  maxconn 2000
defaults
  mode http
  log global
  log-format \"%ST %HQ\"
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout tarpit 3s
frontend calls
  bind 127.0.0.1:{port}
  http-request track-sc0 str(all) table rates
  http-request {rule} if {{ sc_http_req_rate(0) gt {limit} }}
  default_backend service
backend service
  server one {backend}
backend rates
  stick-table type string len 8 size 1k expire 60s store http_req_rate({period})
"
    )
}
