//! The commands of one page, in order, in one directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::docs::block::{self, Block, Step};
use crate::docs::fixtures::{self, LETTER};
use crate::docs::root;
use crate::docs::server::{self, Server};

/// How long one command may take; most take a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a page; panics with every command that did not end as the page says.
pub(crate) fn run(name: &str) {
    let blocks = block::blocks(&fs::read_to_string(root().join(name)).unwrap());
    let mut page = Page::new(name);
    let mut wrong = Vec::new();
    for block in blocks {
        match block {
            Block::File { name, text, .. } => page.write(&name, &page.supplied(&text)),
            Block::Console { run: true, commands, .. } => {
                for step in commands {
                    if let Err(why) = page.step(&step) {
                        wrong.push(format!("{name}:{}: {}\n{why}", step.line, step.text));
                    }
                }
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

struct Page {
    directory: tempfile::TempDir,
    /// What the page writes, and what stands for it here.
    substitutes: Vec<(String, String)>,
    /// The service without bad rows and the one with some; then those that the page starts.
    servers: Vec<Server>,
}

impl Page {
    fn new(name: &str) -> Page {
        let directory = tempfile::tempdir().unwrap();
        let mut page = Page { directory, substitutes: Vec::new(), servers: Vec::new() };
        fs::create_dir(page.here()).unwrap();
        for arguments in ["", "--bad-rows 10%"] {
            let holds = fixtures::chaos(name);
            let server = page.start(&format!("tidegate chaos {holds} --page-max 100 --seed 1 {arguments}"));
            page.servers.push(server);
        }
        page.substitutes = fixtures::substitutes(&page.servers[0].url);
        for (file, text) in fixtures::files(name) {
            page.write(file, &page.supplied(&text));
        }
        for (file, from) in fixtures::copies(name) {
            let path = page.here().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::copy(root().join(from), path).unwrap();
        }
        for command in fixtures::commands(name) {
            assert_eq!(page.shell(command), Ok(0), "{command}");
        }
        page
    }

    /// The directory of the page's commands.
    fn here(&self) -> PathBuf {
        self.directory.path().join("page")
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.here().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A text of the page with its examples replaced by what there is.
    fn supplied(&self, text: &str) -> String {
        self.substitutes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    /// One command; an error says what it printed.
    fn step(&mut self, step: &Step) -> Result<(), String> {
        let mut command = self.supplied(&step.text);
        if command.contains(LETTER) {
            command = command.replace(LETTER, &self.newest_letter(&command));
        }
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["tidegate", "chaos" | "serve", ..] => {
                let server = self.start(&command);
                if let Some(documented) = &step.address {
                    self.substitutes.push((documented.clone(), server.url.clone()));
                }
                self.servers.push(server);
                Ok(())
            }
            ["curl", "-s", url, ..] => {
                let answer = server::get(url);
                if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
            }
            _ => match self.shell(&command)? {
                code if code == step.exit_code() => Ok(()),
                code => Err(format!("ended with {code}, not {}:\n{}", step.exit_code(), self.printed())),
            },
        }
    }

    /// Starts a server on a free port.
    fn start(&self, command: &str) -> Server {
        let mut command = command.split(" # ").next().unwrap().trim_end_matches(['&', ' ']).to_owned();
        if command.starts_with("tidegate serve") && !command.contains("--listen") {
            command.push_str(" --listen 127.0.0.1:0");
        }
        let log = self.directory.path().join(format!("server-{}.log", self.servers.len()));
        Server::start(&mut self.command(&format!("exec {command}")), &log)
    }

    /// A command line for the shell, in the page's directory.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        let binary = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
        command
            .args(["-c", line])
            .current_dir(self.here())
            .env("PATH", path)
            .env("HOME", self.directory.path());
        for name in ["PROJ_DATA", "TIDEGATE_GRIDS", "OUT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            command.env_remove(name);
        }
        if let Some(server) = self.servers.get(1) {
            command.env("URL", &server.url);
        }
        command.envs(fixtures::ENVIRONMENT.iter().copied());
        command
    }

    /// Runs a command line and gives its exit code.
    fn shell(&self, line: &str) -> Result<i32, String> {
        let log = fs::File::create(self.directory.path().join("printed.log")).unwrap();
        let mut command = self.command(line);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return Ok(status.code().unwrap_or(-1));
            }
            if start.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("took longer than {PATIENCE:?}:\n{}", self.printed()));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    /// What the last command printed.
    fn printed(&self) -> String {
        fs::read_to_string(self.directory.path().join("printed.log")).unwrap()
    }

    /// The id of the newest letter of the store that a command names.
    fn newest_letter(&self, command: &str) -> String {
        let store = command.split_once("--store ").and_then(|(_, rest)| rest.split_whitespace().next());
        let line = format!(
            "tidegate dlq ls --format ndjson --store {} 2>&1",
            store.unwrap_or(".tidegate/letters.db")
        );
        assert_eq!(self.shell(&line), Ok(0), "{}", self.printed());
        let text = self.printed();
        let letter: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        letter["id"].as_str().unwrap().to_owned()
    }
}
