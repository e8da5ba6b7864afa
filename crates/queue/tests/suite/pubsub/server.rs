//! The Pub/Sub emulator of the Google Cloud SDK, started once for the tests of this binary.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where Debian's package and the archive of the SDK put it.
const PLACES: [&str; 3] =
    ["/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/opt/google-cloud-sdk"];
/// Names another jar, or the directory of the SDK.
const VARIABLE: &str = "PUBSUB_EMULATOR";
/// How long a busy machine may need.
const UP: Duration = Duration::from_secs(180);

/// The emulator behind a shell, which ends it when its own standard input ends: at the latest when
/// the test process ends.
struct Emulator {
    _shell: Child,
    port: u16,
}

/// The port of the emulator that the tests of this binary share.
pub(crate) fn shared() -> Result<u16, String> {
    static EMULATOR: OnceLock<Result<Emulator, String>> = OnceLock::new();
    EMULATOR.get_or_init(start).as_ref().map(|emulator| emulator.port).map_err(Clone::clone)
}

/// The jar: of the named SDK, or of one at a usual place.
fn jar() -> Result<PathBuf, String> {
    let given = std::env::var_os(VARIABLE).map(PathBuf::from);
    if let Some(file) = given.as_ref().filter(|path| path.is_file()) {
        return Ok(file.clone());
    }
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join("google-cloud-sdk"));
    for sdk in given.into_iter().chain(PLACES.map(PathBuf::from)).chain(home) {
        let Ok(files) = std::fs::read_dir(sdk.join("platform/pubsub-emulator/lib")) else { continue };
        let found = files.flatten().map(|file| file.path()).find(|path| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with("-all.jar"))
        });
        if let Some(jar) = found {
            return Ok(jar);
        }
    }
    Err(format!(
        "the Pub/Sub emulator is missing: install the package google-cloud-cli-pubsub-emulator and a Java \
         runtime, or name the directory of a Google Cloud SDK with the component pubsub-emulator in {VARIABLE}"
    ))
}

fn start() -> Result<Emulator, String> {
    let jar = jar()?;
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    let port = free.local_addr().map_err(|e| e.to_string())?.port();
    drop(free);
    let script = "java -Xmx256m -jar \"$1\" --host=127.0.0.1 --port=\"$2\" </dev/null >/dev/null 2>&1 & \
                  pid=$!; read -r _; kill $pid";
    let shell = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&jar)
        .arg(port.to_string())
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|e| format!("the Pub/Sub emulator cannot be started: {e}"))?;
    let emulator = Emulator { _shell: shell, port };
    let end = Instant::now() + UP;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if Instant::now() > end {
            return Err(format!(
                "the Pub/Sub emulator {} did not start; is a Java runtime installed?",
                jar.display()
            ));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(emulator)
}
