//! The fenced blocks of a Markdown page.

/// A fenced block.
pub(crate) enum Block {
    /// Commands, each after `$ `, with what they print.
    Console {
        /// False if the fence says `no-run`.
        run: bool,
        /// The line of the fence, from 1.
        line: usize,
        commands: Vec<Step>,
    },
    /// A file that later commands of the page use: its fence has a name after the language.
    File { line: usize, name: String, text: String },
    /// Anything else.
    Other {
        line: usize,
        /// Whether a line of it starts with `tidegate` and is not a synopsis (`text`).
        has_command: bool,
    },
}

/// A command of a console block.
pub(crate) struct Step {
    /// The line of the page, from 1.
    pub(crate) line: usize,
    /// The command, with its comment.
    pub(crate) text: String,
    /// The address that a server prints according to the page.
    pub(crate) address: Option<String>,
}

impl Step {
    /// The exit code that the comment states, else 0.
    pub(crate) fn exit_code(&self) -> i32 {
        let comment = self.text.split_once(" # ").map_or("", |(_, comment)| comment);
        let Some((_, rest)) = comment.split_once("exit ") else { return 0 };
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    }
}

impl Block {
    pub(crate) fn line(&self) -> usize {
        match self {
            Block::Console { line, .. } | Block::File { line, .. } | Block::Other { line, .. } => *line,
        }
    }
}

/// The fenced blocks of a page, in order.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let body: Vec<(usize, &str)> = lines.by_ref().take_while(|(_, l)| !l.starts_with("```")).collect();
        blocks.push(block(number + 1, info, &body));
    }
    blocks
}

fn block(line: usize, info: &str, body: &[(usize, &str)]) -> Block {
    let (language, attribute) = info.split_once(' ').unwrap_or((info, ""));
    let text = || body.iter().map(|(_, l)| format!("{l}\n")).collect();
    match (language, attribute) {
        ("console", "" | "no-run") => {
            Block::Console { run: attribute.is_empty(), line, commands: steps(body) }
        }
        (_, name) if name.contains('.') => Block::File { line, name: name.to_owned(), text: text() },
        _ => Block::Other {
            line,
            has_command: language != "text" && body.iter().any(|(_, l)| l.starts_with("tidegate ")),
        },
    }
}

/// The commands: lines after `$ `, with the lines that a backslash continues.
fn steps(body: &[(usize, &str)]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut continues = false;
    for (number, line) in body {
        let (part, first) = match line.strip_prefix("$ ") {
            Some(command) => (command, true),
            None => (*line, false),
        };
        if first && !continues {
            steps.push(Step { line: number + 1, text: part.to_owned(), address: None });
        } else if let Some(step) = steps.last_mut() {
            if continues {
                step.text = format!("{} {}", step.text.trim_end_matches('\\'), part.trim());
            } else if line.starts_with("http://") && step.address.is_none() {
                step.address = Some(line.trim().to_owned());
            }
        }
        continues = (first || continues) && line.ends_with('\\');
    }
    steps
}

#[test]
fn a_block_is_taken_apart() {
    let page = "\
```console
$ tidegate a \\
    --b &
http://127.0.0.1:1
$ tidegate c   # all but one; exit 4: one is bad
out
```
```yaml x/y.yaml
k: 1
```
```sh
tidegate d
```
";
    let blocks = blocks(page);
    let [
        Block::Console { run: true, line: 1, commands },
        Block::File { name, text, .. },
        Block::Other { has_command: true, .. },
    ] = blocks.as_slice()
    else {
        panic!("three blocks");
    };
    assert_eq!((name.as_str(), text.as_str()), ("x/y.yaml", "k: 1\n"));
    let [first, second] = commands.as_slice() else { panic!("two commands") };
    assert_eq!(first.text, "tidegate a  --b &");
    assert_eq!((first.address.as_deref(), first.exit_code()), (Some("http://127.0.0.1:1"), 0));
    assert_eq!((second.line, second.exit_code()), (5, 4));
}
